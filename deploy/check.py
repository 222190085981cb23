"""The operations kit is what it says: units, settings, containers, alerts, runbook, dashboard and tables, against each
other and against the program.

`.venv/bin/python deploy/check.py target/debug/incrowd promtool`; needs systemd-analyze (which works without a running systemd),
promtool, openssl and what deploy/requirements.txt names.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.request

from check_containers import containers

root = pathlib.Path(__file__).resolve().parent.parent
deploy = root / "deploy"
operations = (root / "docs/operations.md").read_text()
runbook = (root / "docs/runbook.md").read_text()
alerts = (deploy / "prometheus/alerts.yml").read_text()
environment = {name: value for name, value in os.environ.items() if not name.startswith("INCROWD_")}
RUNBOOK = "https://github.com/incrowd/incrowd/blob/main/docs/runbook.md#"
# Tenths of systemd's exposure level: 0 is a service without any access, 96 one without any restriction.
EXPOSURE = 15
# What the number of reports shows in: for the shuffler's own operator only (R26).
PER_REPORT = {
    "incrowd_reports_total",
    "incrowd_batch_reports",
    "incrowd_remembered_ids",
    "incrowd_commit_queue",
    "incrowd_commit_reports",
    "incrowd_commit_seconds",
    "incrowd_http_requests_total",
    "incrowd_http_request_seconds",
}
# For a start only, whose certificate is quickly computed: rounds close by time, and begin in a hundred years.
TASK = """
[mechanism]
dimension = 1
context_bound = 1.0
layout = "shared"
closes = "time"
opens = "4900000000000"
schedule = [{ rounds = 1, size = 1000, window = 3600000, encoding = "bits", bits = 1, flip = "1/2" }]
grace = 0
central_delta = 1e-6
participations = 1
honest_fraction = 1.0
"""
wrong = []


def expect(condition, text):
    if not condition:
        wrong.append(text)


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=environment, **more)
    expect(done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def same(name, left, right):
    left, right = set(left), set(right)
    expect(left == right, f"{name}: only in the first {sorted(left - right)}, only in the second {sorted(right - left)}")


def units(incrowd):
    """Every unit is one that systemd takes, with little access, and has its settings beside it."""
    found = sorted((deploy / "systemd").glob("*.service"))
    expect(len(found) == 4, "there are units of four roles")
    with tempfile.TemporaryDirectory() as folder:
        for unit in found:
            copy = pathlib.Path(folder) / unit.name
            copy.write_text(unit.read_text().replace("/usr/local/bin/incrowd", str(incrowd)))
            run("systemd-analyze", "verify", "--man=no", copy)
            run("systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}", "--no-pager", copy)
            role = unit.stem.removeprefix("incrowd-")
            text = unit.read_text()
            file = re.search(rf"/etc/incrowd/({role}\.\w+)", text)
            expect(file and (deploy / "systemd" / file[1]).exists(), f"{unit.name} has no settings beside it")
            expect(f"u {f'incrowd-{role}':<16} " in (deploy / "systemd/incrowd.sysusers").read_text(), f"{role} has no user")


def settings_of(incrowd, *arguments, **more):
    shown = run(incrowd, "config", "show", "--output", "json", *arguments, **more)
    return {setting["key"] for setting in json.loads(shown or "[]")}


def rows(heading):
    """The first column of the first table below a heading: names, where `.b` after `a.c` is `a.b`."""
    section = operations.split(f"\n{heading}\n", 1)[1]
    table = re.search(r"^\|.*\n\|[-|]+\n((?:\|.*\n?)+)", section, flags=re.M).group(1)
    for row in table.splitlines():
        base = ""
        for name in re.findall(r"`([^`]+)`", row.split("|")[1]):
            if name.startswith("."):
                name = base.rpartition(".")[0] + name
            base = name
            yield name


def settings(incrowd):
    """The table of settings has every setting and no other; the example settings are taken."""
    known = settings_of(incrowd)
    for role in ("serve", "shuffler", "bandit"):
        known |= settings_of(incrowd, "--config", deploy / f"systemd/{role}.toml")
    # The relay's are read before its token, which is not here.
    relay = [str(part) for part in (incrowd, "relay", "--config", deploy / "systemd/relay.toml")]
    said = subprocess.run(relay, capture_output=True, text=True, env=environment).stderr
    expect("/var/lib/incrowd-relay/relay.token" in said, f"relay.toml is not taken: {said}")
    documented = set(rows("## Settings"))
    # Some settings are tables, such as shuffler.round_keys.
    parent = lambda name: name.rpartition(".")[0] if name.rpartition(".")[0] in documented else name
    known = set(map(parent, known))
    for name in documented - known:
        # What has no default is shown once it is set.
        environment["INCROWD_" + name.upper().replace(".", "__")] = "x"
    known |= set(map(parent, settings_of(incrowd)))
    for name in [name for name in environment if name.startswith("INCROWD_")]:
        del environment[name]
    same("settings of docs/operations.md and of `incrowd config show`", documented, known)


def rules(promtool):
    """Every alert is tested and has a section in the runbook with the same four parts."""
    folder = deploy / "prometheus"
    run(promtool, "check", "rules", folder / "alerts.yml")
    run(promtool, "check", "config", "--syntax-only", folder / "scrape.yml")
    run(promtool, "test", "rules", folder / "alerts_test.yml", folder / "alerts_days_test.yml")
    names = re.findall(r"- alert: (\w+)", alerts)
    expect(len(names) == len(set(names)), "two alerts have the same name")
    expect(re.findall(r"runbook_url: (\S+)", alerts) == [RUNBOOK + name.lower() for name in names], "an alert names another section")
    tests = "".join((folder / name).read_text() for name in ("alerts_test.yml", "alerts_days_test.yml"))
    same("alerts and alerts that fire in a test", names, re.findall(r"- alertname: (\w+)", tests))
    same("alerts and alerts that are silent in a test", names, re.findall(r"- \{ alertname: (\w+), .*exp_alerts: \[\] \}", tests))
    sections = re.split(r"^## (\w+)$", runbook, flags=re.M)[1:]
    expect(sections[::2] == names, "the sections of docs/runbook.md are not the alerts, in their order")
    for name, text in zip(sections[::2], sections[1::2]):
        parts = re.findall(r"^\*\*(.+?)\.\*\*", text, flags=re.M)
        expect(parts == ["Means", "At risk", "Look at", "Do"], f"docs/runbook.md, {name}: the parts are {parts}")
    groups = re.split(r"^  - name: (\S+)$", alerts, flags=re.M)[1:]
    for name, text in zip(groups[::2], groups[1::2]):
        used = metrics_in(text) & PER_REPORT
        expect(name == "incrowd-shuffler" or not used, f"the group {name} shows how many reports came: {used}")


def metrics_in(text):
    """Names of metrics in expressions; parts of a histogram are the histogram."""
    names = re.findall(r"\b((?:incrowd|process)_[a-z_]+)", re.sub(r"\#.*|\"[^\"]*\"|summary:.*", "", text))
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


def dashboard():
    """Every panel has a title, the variable for its data source, and targets."""
    board = json.loads((deploy / "grafana/incrowd.json").read_text())
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    expect(variables["datasource"]["type"] == "datasource", "the dashboard has no variable for its data source")
    expect({panel["id"] for panel in board["panels"]} == set(range(1, len(board["panels"]) + 1)), "ids of panels")
    source, taken, used = {"type": "prometheus", "uid": "${datasource}"}, set(), set()
    for panel in board["panels"]:
        title, place = panel.get("title"), panel["gridPos"]
        expect(title, f"panel {panel['id']} has no title")
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        expect(not cells & taken and place["x"] + place["w"] <= 24, f"{title}: lies on another panel")
        taken |= cells
        if panel["type"] == "row":
            continue
        expect(panel["datasource"] == source, f"{title}: another data source")
        expect(panel["targets"], f"{title}: no targets")
        for target in panel["targets"]:
            expect(target["datasource"] == source and target["legendFormat"], f"{title}: data source or legend of a target")
            expression = target["expr"]
            for variable in re.findall(r"\$(\w+)", expression):
                expect(variable in variables, f"{title}: no variable {variable}")
            used |= metrics_in(expression)
    return used


def documented_metrics():
    """Of the table of metrics, each name and what the row says."""
    section = re.split(r"^## ", operations.split("\n## Metrics\n", 1)[1], flags=re.M)[0]
    for row in re.findall(r"^\| (`.+?) \| (.+) \|$", section, flags=re.M):
        for name in re.findall(r"`([a-z_]+)(?:\{[a-z,]+\})?`", row[0]):
            yield name, row[1]


def scraped(address, token=None):
    """Names of the metrics that a service shows."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    get = lambda path: urllib.request.urlopen(urllib.request.Request(f"http://{address}{path}", headers=headers)).read().decode()
    get("/healthz")  # Answers are counted from the first on.
    shown = re.findall(r"^([a-z_]+)[ {]", get("/metrics"), flags=re.M)
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}


def start(folder, services, *command):
    """Starts a service; the addresses that it prints, for devices and for the operator."""
    with open(folder / f"{command[1]}.log", "w") as log:
        service = subprocess.Popen([str(part) for part in command], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    services.append(service)
    found = {}
    while len(found) < 2:
        line = service.stdout.readline()
        if not line:
            sys.exit(f"{' '.join(map(str, command))}\n{(folder / f'{command[1]}.log').read_text()}")
        if named := re.match(r"(listening|admin) on (\S+)", line):
            found[named[1]] = named[2]
    return found["listening"], found["admin"]


def metrics(incrowd, used):
    """The table of metrics has every metric of running services and no other; alerts and panels use nothing else."""
    documented = dict(documented_metrics())
    with tempfile.TemporaryDirectory() as name:
        folder, services = pathlib.Path(name), []
        try:
            (folder / "task.toml").write_text(TASK)
            (folder / "relay.token").write_text(run(incrowd, "keys", "token", "--role", "relay", "--data", "other", cwd=folder))
            (folder / "relay.token").chmod(0o600)
            anywhere = ("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
            # Nobody fetches a model there. Keys of rounds stay in the folder too.
            (folder / "serve.toml").write_text('[shuffler]\nmodel_url = "http://127.0.0.1:9"\nround_keys = { kind = "file" }\n')
            serve = ("--task", "task.toml", "--config", "serve.toml", *anywhere)
            _, admin = start(folder, services, incrowd, "serve", *serve)
            shown = scraped(admin, (folder / "incrowd-data/admin.token").read_text().strip())
            # A gateway that does not answer is no reason not to start.
            relay = ("--gateway", "http://127.0.0.1:9", "--token-file", "relay.token", *anywhere)
            shown |= scraped(start(folder, services, incrowd, "relay", *relay)[1])
        finally:
            for service in services:
                service.kill()
                service.wait()
                service.stdout.close()
    expect(not shown - documented.keys(), f"metrics of services that docs/operations.md does not have: {shown - documented.keys()}")
    source = "".join(path.read_text() for path in (root / "crates/node/src/metrics").glob("*.rs"))
    for name in sorted(documented.keys() - shown):
        # Some are absent from a new service without TLS. Their name is in the source, without prefix and unit.
        there = f'"{name.removeprefix("incrowd_").removesuffix("_seconds")}"' in source
        expect(there and "absent" in documented[name], f"docs/operations.md has the metric {name}, running services do not")
    unknown = (used | metrics_in(alerts)) - documented.keys()
    expect(not unknown, f"alerts and panels use metrics that docs/operations.md does not have: {unknown}")
    text = re.split(r"^## ", operations.split("\n## What the metrics tell\n", 1)[1], flags=re.M)[0]
    same("metrics that tell arrivals, in docs/operations.md and here", re.findall(r"`(incrowd_[a-z_]+)`", text), PER_REPORT)


def main():
    incrowd, promtool = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    units(incrowd)
    settings(incrowd)
    containers(incrowd, TASK, environment, expect)
    rules(promtool)
    metrics(incrowd, dashboard())
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"4 units, containers, {alerts.count('- alert:')} alerts, the dashboard and the metrics of running services agree")


main()
