"""The served description of each role against the role itself: no answer that the description does not have, and none in the 500s.

Starts `incrowd shuffler`, `bandit` and `relay` as processes, fills one batch so that there is a release and a model, and lets schemathesis ask
all of their listeners, as a stranger and with the right tokens. `.venv/bin/python crates/cli/tests/openapi/check.py target/debug/incrowd`
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

PLAN = """
[mechanism]
dimension = 2
context_bound = 1.0
schedule = [{ rounds = 1000, size = 2, encoding = "bits", bits = 1, flip = "1/2" }]
layout = "shared"
closes = "count"
grace = 0
central_delta = 1e-6
participations = 1
honest_fraction = 1.0
"""
LIFTED = "--limit-epsilon-local 1e9 --limit-epsilon-central 1e9 --limit-smallest-batch 1".split()
EXCLUDED = [
    # To a schema a body is bytes: it cannot say whether they are a report, of this round and sealed to this key (409, 422).
    "positive_data_acceptance",
]
EXAMPLES, SEED = "25", "1"

incrowd = pathlib.Path(sys.argv[1]).resolve()
schemathesis = pathlib.Path(sys.executable).with_name("schemathesis")
environment = {name: value for name, value in os.environ.items() if not name.startswith("INCROWD_")}


def said(*arguments):
    done = subprocess.run([incrowd, *arguments], env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def token(role, folder, service):
    """A new token of a service; its file is named after both."""
    file = folder / f"{service}-{role}.token"
    said("keys", "token", "--role", role, "--data", folder / service, "--out", file)
    return file.read_text().strip()


def start(role, folder, *arguments):
    """A role that listens on free ports, and its addresses."""
    listen = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
    if role != "relay":
        listen += ["--data", folder / role, "--task", folder / "task.toml", *LIFTED]
    log = open(folder / f"{role}.log", "w")
    process = subprocess.Popen(
        [incrowd, role, *listen, *arguments], env=environment, stdout=subprocess.PIPE, stderr=log, text=True
    )
    addresses = []
    for prefix in ("listening on ", "admin on "):
        line = process.stdout.readline()
        if not line.startswith(prefix):
            raise SystemExit((folder / f"{role}.log").read_text())
        addresses.append("http://" + line.split()[-1])
    return process, *addresses


def ask(method, url, token=None, body=None, kind=None):
    headers = {"authorization": f"Bearer {token}"} if token else {}
    headers |= {"content-type": kind} if kind else {}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method), timeout=60) as answer:
        return answer.status, answer.read()


def eventually(url):
    """Waits until there is something."""
    for _ in range(600):
        try:
            return ask("GET", url)
        except urllib.error.HTTPError:
            time.sleep(0.1)
    raise SystemExit(f"nothing at {url}")


def fill_a_batch(base, token):
    """Two plain reports as docs/formats.md has them, of zeros."""
    environment["MECHANISM"] = json.loads(ask("GET", f"{base}/config")[1])["certificate"]["mechanism"]
    mechanism = bytes.fromhex(environment["MECHANISM"])
    for number in (1, 2):
        name = bytes([number]) * 16
        report = b"\1" + mechanism[:8] + (1).to_bytes(4, "big") + name + b"\0"
        ask("PUT", f"{base}/reports/{name.hex()}", token, report, "application/vnd.incrowd.report")


def examine(folder, role, url, task, tokens):
    """As a stranger who knows nothing, and as one who knows the task and has the token that each path asks for."""
    hooks = pathlib.Path(__file__).resolve().with_name("hooks.py")
    for name, known, schemes in [("stranger", {}, {}), ("caller", {"TASK": task}, tokens)]:
        settings = f'hooks = "{hooks}"\n'
        for scheme, token in schemes.items():
            settings += f'[auth.openapi.{scheme}]\nbearer = "{token}"\n'
        file = folder / f"{role}-{name}.toml"
        file.write_text(settings)
        command = [schemathesis, "--config-file", file, "run", f"{url}/openapi.json", "--checks", "all"]
        # A relay answers 502, as described, to what the gateway refuses to open.
        excluded = EXCLUDED + (["not_a_server_error"] if role == "relay" else [])
        command += ["--exclude-checks", ",".join(excluded), "--max-examples", EXAMPLES, "--seed", SEED]
        command += ["--phases", "coverage,fuzzing", "--continue-on-failure", "--warnings", "off", "--no-color"]
        began = time.monotonic()
        done = subprocess.run(command, cwd=folder, env=environment | known, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{role}, {name}:\n{done.stdout}{done.stderr}")
        cases = re.search(r"(\d+) generated", done.stdout).group(1)
        print(f"{role}, {name}: {cases} requests in {time.monotonic() - began:.0f} s")


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        keys = {role: said("keys", "new", "--role", role, "--data", folder / role) for role in ("shuffler", "bandit")}
        tokens = {role: token(role, folder, "shuffler") for role in ("device", "bandit", "relay", "admin")}
        operator = {"admin": token("admin", folder, "bandit")}
        (folder / "plan.toml").write_text(PLAN)
        named = ["--shuffler-key", keys["shuffler"], "--bandit-key", keys["bandit"]]
        (folder / "task.toml").write_text(said("task", "new", "--plan", folder / "plan.toml", "--plain-reports", *named))
        task = said("task", "show", folder / "task.toml").split()[1]
        running = []
        try:
            process, shuffler, shuffler_admin = start("shuffler", folder)
            running.append(process)
            process, bandit, bandit_admin = start("bandit", folder, "--shuffler-url", shuffler, "--token-file", folder / "shuffler-bandit.token")
            running.append(process)
            base = f"{shuffler}/v1/tasks/{task}"
            fill_a_batch(base, tokens["device"])
            eventually(f"{bandit}/v1/tasks/{task}/model")
            examine(folder, "shuffler", shuffler, task, tokens)
            if ask("GET", f"{base}/releases/2", tokens["bandit"])[0] != 200:
                raise SystemExit("no report that schemathesis sent was counted: it does not get beyond the guards")
            examine(folder, "bandit", bandit, task, {})
            process, relay, relay_admin = start("relay", folder, "--gateway", shuffler, "--token-file", folder / "shuffler-relay.token")
            running.append(process)
            examine(folder, "relay", relay, task, {})
            examine(folder, "relay-admin", relay_admin, task, {})
            # Last: it closes the task.
            examine(folder, "shuffler-admin", shuffler_admin, task, {"admin": tokens["admin"]})
            if b'"closed":true' not in ask("GET", f"{shuffler_admin}/v1/tasks", tokens["admin"])[1]:
                raise SystemExit("the admin token of schemathesis did not close the task: it does not get beyond the guards")
            examine(folder, "bandit-admin", bandit_admin, task, operator)
            for process in running:
                if process.poll() is not None:
                    raise SystemExit("a service has ended")
        finally:
            for process in running:
                process.kill()
                process.wait()


main()
