"""Starts the image without a daemon, as root: `python3 deploy/image/try.py [target/image/incrowd.tar]`; needs Debian's runc.

Unpacks the archive that `deploy/image/build` wrote and runs its containers as a cluster would: as the image's user,
without capabilities, on a read-only root file system, with a network of its own and one writable folder. A service must
become ready, count real reports, refuse to write elsewhere, and end in good order.
"""

import gzip
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import time

DATA = "/var/lib/incrowd"
# Batches close when they are full: reports count at once.
PLAN = "plan --dimension 5 --horizon 20000 --central-epsilon 1 --task-file task.toml"
SERVE = "serve --task task.toml"
LOAD = "load --url http://127.0.0.1:8787 --task task.toml --token-file incrowd-data/device.token --reports 200 --connections 1"
READY = "wget -q -O - http://127.0.0.1:8788/readyz"


def unpack(archive, folder):
    """The image's root file system in a folder, and its settings."""
    with tarfile.open(archive) as image:
        blob = lambda digest: image.extractfile("blobs/" + digest.replace(":", "/")).read()
        index = json.load(image.extractfile("index.json"))
        manifest = json.loads(blob(index["manifests"][0]["digest"]))
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob(layer["digest"])))) as files:
                files.extractall(folder, numeric_owner=True)
        return json.loads(blob(manifest["config"]["digest"]))["config"]


class Bundle:
    """What runc starts containers from; all of them have the same folder for data."""

    def __init__(self, archive, folder):
        self.folder, self.root, self.data = folder, folder / "runc", folder / "data"
        (folder / "rootfs").mkdir()
        self.image = unpack(archive, folder / "rootfs")
        self.user, self.group = map(int, self.image["User"].split(":"))
        self.data.mkdir(mode=0o700)
        os.chown(self.data, self.user, self.group)
        subprocess.run(["runc", "spec"], cwd=folder, check=True)
        self.template = json.loads((folder / "config.json").read_text())

    def settings(self, arguments):
        """runc's own settings with the image's, and less."""
        settings = json.loads(json.dumps(self.template))
        process = settings["process"]
        process["terminal"] = False
        process["user"] = {"uid": self.user, "gid": self.group}
        process["args"] = self.image["Entrypoint"] + arguments.split()
        process["env"] = self.image["Env"]
        process["cwd"] = self.image["WorkingDir"]
        process["capabilities"] = {name: [] for name in process["capabilities"]}
        del process["rlimits"]  # Those of the caller.
        assert process["noNewPrivileges"] and settings["root"]["readonly"] and DATA in self.image["Volumes"]
        mount = {"destination": DATA, "type": "none", "source": str(self.data), "options": ["bind", "rw", "nosuid", "nodev"]}
        settings["mounts"].append(mount)
        return json.dumps(settings)

    def start(self, name, arguments):
        (self.folder / "config.json").write_text(self.settings(arguments))
        command = ["runc", "--root", self.root, "run", "--bundle", self.folder, name]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def inside(self, name, *command, check=True):
        """A program in a running container."""
        command = ["runc", "--root", self.root, "exec", name, *command]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if check and done.returncode:
            sys.exit(f"{command}: {done.returncode}\n{done.stdout}")
        return done


def main():
    archive = sys.argv[1] if len(sys.argv) > 1 else "target/image/incrowd.tar"
    with tempfile.TemporaryDirectory() as folder:
        bundle = Bundle(archive, pathlib.Path(folder))
        plan = bundle.start("incrowd-try-plan", PLAN)
        said = plan.communicate()[0]
        if plan.returncode:
            sys.exit(said)
        began = time.monotonic()
        name = "incrowd-try-serve"
        service = bundle.start(name, SERVE)
        try:
            while bundle.inside(name, "/bin/busybox", *READY.split(), check=False).returncode:
                if service.poll() is not None or time.monotonic() - began > 60:
                    sys.exit(f"the service is not ready\n{service.stdout.read() if service.poll() is not None else ''}")
                time.sleep(0.05)
            ready = time.monotonic() - began
            bundle.inside(name, "/usr/bin/incrowd", *LOAD.split())
            owner = bundle.inside(name, "/bin/busybox", "stat", "-c", "%u %a", f"{DATA}/incrowd-data/shuffler.keys").stdout
            elsewhere = bundle.inside(name, "/bin/busybox", "touch", "/tmp/file", check=False).stdout
            raised = bundle.inside(name, "/bin/busybox", "grep", "-E", "^(CapEff|NoNewPrivs|Seccomp):", "/proc/1/status").stdout
        finally:
            subprocess.run(["runc", "--root", bundle.root, "kill", name, "TERM"], check=False)
            said, _ = service.communicate(timeout=60)
        expected = owner.split() == [str(bundle.user), "600"] and "Read-only file system" in elsewhere
        if service.returncode or not expected:
            sys.exit(f"exit code {service.returncode}, owner and mode of keys {owner}, a write elsewhere: {elsewhere}\n{said}")
        print(f"ready after {ready:.1f} s, 200 reports counted, {' '.join(raised.split())}, ended with exit code 0")


main()
