"""Containers from an OCI archive, started with runc: what `start.py` here and `../compose/start.py` share."""

import gzip
import io
import json
import pathlib
import subprocess
import tarfile


class Image:
    """An archive that `deploy/image/build` wrote, unpacked."""

    def __init__(self, archive, folder):
        self.root = pathlib.Path(folder) / "rootfs"
        self.root.mkdir()
        with tarfile.open(archive) as image:
            blob = lambda digest: image.extractfile("blobs/" + digest.replace(":", "/")).read()
            index = json.load(image.extractfile("index.json"))
            manifest = json.loads(blob(index["manifests"][0]["digest"]))
            for layer in manifest["layers"]:
                with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob(layer["digest"])))) as files:
                    files.extractall(self.root, numeric_owner=True)
            self.config = json.loads(blob(manifest["config"]["digest"]))["config"]
        self.user, self.group = map(int, self.config["User"].split(":"))


class Container:
    """A container of an image: its user, no capabilities, a read-only root file system, and mounts.

    `mounts` are (source, target, options); `network` is the path of a namespace, or None for one of its own;
    `environment` are further variables.
    """

    def __init__(self, image, name, folder, arguments, mounts=(), network=None, environment=()):
        self.name, self.folder, self.state = name, pathlib.Path(folder) / name, pathlib.Path(folder) / "runc"
        self.folder.mkdir()
        subprocess.run(["runc", "spec"], cwd=self.folder, check=True)
        file = self.folder / "config.json"
        settings = json.loads(file.read_text())
        settings["hostname"] = name
        settings["root"] = {"path": str(image.root), "readonly": True}
        process = settings["process"]
        process["terminal"] = False
        process["user"] = {"uid": image.user, "gid": image.group}
        process["args"] = image.config["Entrypoint"] + list(arguments)
        process["env"] = [*image.config["Env"], *environment]
        process["cwd"] = image.config["WorkingDir"]
        process["capabilities"] = {name: [] for name in process["capabilities"]}
        process["noNewPrivileges"] = True
        del process["rlimits"]  # Those of the caller.
        for source, target, *options in mounts:
            options = ["bind", "nosuid", "nodev", *options]
            settings["mounts"].append({"destination": target, "type": "none", "source": str(source), "options": options})
        if network:
            for namespace in settings["linux"]["namespaces"]:
                if namespace["type"] == "network":
                    namespace["path"] = str(network)
        file.write_text(json.dumps(settings))

    def runc(self, *command, **more):
        command = ["runc", "--root", self.state, *command]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)

    def start(self):
        """Also again, after it has ended."""
        self.log = open(self.folder / "log", "w+")
        command = ["runc", "--root", self.state, "run", "--bundle", self.folder, self.name]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        return self

    def inside(self, *command):
        """A program in the running container: its exit code and what it says."""
        done = self.runc("exec", self.name, *command)
        return done.returncode, done.stdout

    def end(self, signal="TERM"):
        """The exit code after a signal."""
        self.runc("kill", self.name, signal)
        return self.wait()

    def wait(self, seconds=60):
        return self.process.wait(timeout=seconds)

    def said(self):
        return (self.folder / "log").read_text()
