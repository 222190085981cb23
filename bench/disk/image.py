"""A shuffler on an ext4 file system in an image, whose bytes can be copied and searched as a thief or a power cut sees them. Needs root."""

import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "vectors"))
import reference  # noqa: E402

LIFTED = "--limit-epsilon-local 1e9 --limit-epsilon-central 1e9 --limit-smallest-batch 1".split()


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


class Disk:
    """An image with ext4 behind a loop device with direct I/O: the image has what the file system wrote, and nothing of the page cache."""

    def __init__(self, image, folder, megabytes=None):
        self.image, self.folder = pathlib.Path(image), pathlib.Path(folder)
        self.folder.mkdir(exist_ok=True)
        if megabytes:
            with open(self.image, "wb") as file:
                file.truncate(megabytes << 20)
            run("mkfs.ext4", "-q", "-b", "4096", self.image)
        self.device = run("losetup", "--direct-io=on", "--find", "--show", self.image).strip()
        direct = run("losetup", "--noheadings", "--output", "DIO", self.device).strip()
        if direct != "1":
            self.detach()
            sys.exit("the loop device has no direct I/O here: what the page cache has could not be told from what is on the disk")
        # The file system writes when it is asked to sync, and not by itself during a run.
        run("mount", "-o", "commit=600", self.device, self.folder)

    def detach(self):
        run("losetup", "--detach", self.device)

    def unmount(self):
        run("umount", self.folder)
        self.detach()

    def copy(self, to):
        """What is on the disk now; twice the same, so nothing was being written."""
        for _ in range(50):
            time.sleep(0.05)
            first = self.image.read_bytes()
            time.sleep(0.05)
            if self.image.read_bytes() == first:
                pathlib.Path(to).write_bytes(first)
                return
        sys.exit("the image does not come to rest")


class Site:
    """The keys, tokens and task of a shuffler."""

    def __init__(self, binary, data, plan):
        self.binary, self.data = binary, pathlib.Path(data)
        self.data.mkdir()
        keys = {}
        for role in ["shuffler", "bandit"]:
            keys[role] = run(binary, "keys", "new", "--role", role, "--data", self.data).strip()
        self.tokens = {
            role: run(binary, "keys", "token", "--role", role, "--data", self.data).strip()
            for role in ["device", "bandit", "admin"]
        }
        self.work = pathlib.Path(tempfile.mkdtemp())
        (self.work / "plan.toml").write_text(plan)
        task = run(binary, "task", "new", "--plan", self.work / "plan.toml", "--plain-reports", "--shuffler-key", keys["shuffler"],
                   "--bandit-key", keys["bandit"])
        self.task = self.work / "task.toml"
        self.task.write_text(task)

    def start(self, data, settings, environment=None):
        return Shuffler(self, data, settings, environment)

    def close(self):
        shutil.rmtree(self.work)


class Shuffler:
    def __init__(self, site, data, settings, environment):
        self.site = site
        config = site.work / "settings.toml"
        config.write_text(settings)
        command = [site.binary, "shuffler", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--task", site.task,
                   "--data", data, "--config", config, *LIFTED]
        self.process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=open(site.work / "log", "a"),
                                        text=True, env={**os.environ, **(environment or {})})
        said = [self.process.stdout.readline() for _ in range(3)]
        match = re.fullmatch(r"listening on (\S+)\nadmin on (\S+)\ntask (\S+)\n", "".join(said))
        if not match:
            sys.exit(f"the shuffler does not start: {(site.work / 'log').read_text()[-2000:]}")
        self.address, self.admin, self.id = match.groups()
        self.connection = http.client.HTTPConnection(self.address, timeout=20)
        notice = json.loads(self.ask("GET", "/config")[1])
        self.mechanism = notice["task"]["mechanism"]

    def ask(self, method, path, body=None, role=None, kind=None):
        headers = {"authorization": f"Bearer {self.site.tokens[role]}"} if role else {}
        if kind:
            headers["content-type"] = kind
        self.connection.request(method, f"/v1/tasks/{self.id}{path}", body, headers)
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def put(self, number, ident, counts):
        body = reference.pack_report(self.mechanism, number, ident, counts)
        return self.ask("PUT", f"/reports/{ident.hex()}", body, "device", "application/vnd.incrowd.report")[0]

    def release(self, number):
        status, body = self.ask("GET", f"/releases/{number}", role="bandit")
        return body if status == 200 else None

    def round(self):
        found = json.loads(self.ask("GET", "/round")[1])["round"]
        return found and found["number"]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(30) != 0:
            sys.exit("the shuffler did not end well")

    def kill(self):
        self.process.kill()
        self.process.wait()


def plan(dimension, rounds, size, bits, window=None):
    """By count, or by time from now on with windows of so many milliseconds. By time nearly no coin flips, so that a pad has half of
    its bits set at every coordinate."""
    closes, flip, stage = 'closes = "count"', "1/2", ""
    if window:
        closes = f'closes = "time"\nopens = "{time.time_ns() // 1_000_000}"'
        flip, stage = f"1/{2**32 - 1}", f"window = {window}, "
    return f"""[mechanism]
dimension = {dimension}
context_bound = 1.0
layout = "shared"
{closes}
grace = 0
central_delta = 1e-6
participations = 1
honest_fraction = 1.0
schedule = [{{ rounds = {rounds}, size = {size}, {stage}encoding = "bits", bits = {bits}, flip = "{flip}" }}]
"""
