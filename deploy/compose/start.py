"""Starts what compose.yaml describes, without a container engine, as root, and kills a node under load.

`.venv/bin/python deploy/compose/start.py [target/image/incrowd.tar]`; needs Debian's runc, iproute2, haproxy, postgresql
and openssl. The program's containers are those of the image, with the settings, secrets and volumes of compose.yaml. The
databases and the balancer are Debian's programs, in networks like those of containers. Each network of compose.yaml is a
bridge without a way to another one; a published port is handed on by this script, as a container engine does. Every
health check of compose.yaml must pass. Then devices of a network of their own send reports, a node is killed, and more
reports come: each accepted report must be in a released batch or in the open one, and the bandit must have a model of the
last release.
"""

import asyncio
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib

import yaml

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "image"))
from oci import Container, Image  # noqa: E402

POSTGRES = "/usr/lib/postgresql/15/bin"
PLAN = "plan --dimension 5 --horizon 20000 --central-epsilon 1 --task-file plan.toml"
LOAD = "load --url https://shuffler.example:8787 --ca authority.pem --task task.toml --token-file device.token"
# More than two batches of the plan, over both loads.
REPORTS = (1500, 1200)


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode:
        sys.exit(f"{command}: {done.returncode}\n{done.stdout}")
    return done.stdout


class Networks:
    """A bridge for each network, a namespace for each service, and what is published."""

    def __init__(self, whole, folder):
        self.folder, self.services, self.addresses = folder, whole["services"], {}
        self.numbers = {name: number for number, name in enumerate([*whole["networks"], "devices"], 1)}
        pathlib.Path("/run/netns").mkdir(exist_ok=True)
        run("ip", "link", "set", "lo", "up")
        for number in self.numbers.values():
            run("ip", "link", "add", f"b{number}", "type", "bridge")
            run("ip", "address", "add", f"10.89.{number}.1/24", "dev", f"b{number}")
            run("ip", "link", "set", f"b{number}", "up")
        for index, (name, service) in enumerate([*self.services.items(), ("devices", {"networks": ["devices"]})], 2):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
            for network in service["networks"]:
                self.join(name, network, index)

    def join(self, name, network, index):
        number = self.numbers[network]
        ours, theirs, address = f"v{number}-{index}", f"n{number}", f"10.89.{number}.{index}"
        run("ip", "link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
        run("ip", "link", "set", ours, "master", f"b{number}", "up")
        run("ip", "-n", name, "address", "add", f"{address}/24", "dev", theirs)
        run("ip", "-n", name, "link", "set", theirs, "up")
        self.addresses.setdefault(name, {})[network] = address

    def hosts(self, name, service):
        """The names that a service knows: those of its networks, and of what it reaches through the machine's ports."""
        mine, lines = self.addresses[name], ["127.0.0.1 localhost"]
        for other, theirs in self.addresses.items():
            lines += [f"{theirs[network]} {other}" for network in mine if network in theirs]
        outside = [network for network in mine if not network.endswith("-inside")]
        for extra in service.get("extra_hosts", []):
            host, target = extra.split(":")
            assert target == "host-gateway"
            lines.append(f"10.89.{self.numbers[outside[0]]}.1 {host}")
        file = self.folder / f"{name}.hosts"
        file.write_text("\n".join(lines) + "\n")
        # `ip netns exec` puts it in the place of /etc/hosts.
        folder = pathlib.Path("/etc/netns") / name
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / "hosts")
        return file

    def publish(self):
        """Hands connections to published ports on to the services, from a thread."""
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        for name, service in self.services.items():
            for port in service.get("ports", []):
                outer, inner = map(int, port.split(":"))
                address = next(at for network, at in self.addresses[name].items() if network.endswith("-outside"))
                serve = asyncio.start_server(hand_on(address, inner), "0.0.0.0", outer)
                asyncio.run_coroutine_threadsafe(serve, loop).result()


def hand_on(address, port):
    async def copy(reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def accept(reader, writer):
        try:
            there = await asyncio.open_connection(address, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

    return accept


class Trial:
    def __init__(self, archive, folder):
        self.folder, self.running = folder, {}
        self.image = Image(archive, folder)
        self.whole = yaml.safe_load((here / "compose.yaml").read_text())
        self.services = self.whole["services"]
        self.prepare()
        self.networks = Networks(self.whole, folder)
        self.volumes = {name: self.volume(name, volume) for name, volume in self.whole["volumes"].items()}

    def prepare(self):
        """A plan by a container, and the files of `prepare`."""
        work = self.folder / "work"
        work.mkdir()
        os.chown(work, self.image.user, self.image.group)
        plan = Container(self.image, "incrowd-plan", self.folder, PLAN.split(), [(work, "/var/lib/incrowd")]).start()
        if plan.wait():
            sys.exit(plan.said())
        self.schedule = tomllib.loads((work / "plan.toml").read_text())["mechanism"]["schedule"]
        self.made = self.folder / "made"
        run(here / "prepare", self.image.root / "usr/bin/incrowd", work / "plan.toml", self.made)

    def file(self, kind, name):
        path = self.whole[kind][name]["file"]
        return self.made / path.removeprefix("./made/") if path.startswith("./made/") else here / path

    def volume(self, name, volume):
        folder = self.folder / "volumes" / name
        folder.mkdir(parents=True)
        options = (volume or {}).get("driver_opts")
        if options:
            run("mount", "-t", options["type"], "-o", options["o"], options["device"], folder)
        else:
            # As a container engine makes it out of the image's folder.
            folder.chmod(0o700)
            os.chown(folder, self.image.user, self.image.group)
        return folder

    def container(self, name, service, hosts):
        mounts = [(hosts, "/etc/hosts", "ro")]
        for use in service.get("volumes", []):
            source, target = use.split(":")
            mounts.append((self.volumes[source], target))
        for kind in ("configs", "secrets"):
            mounts += [(self.file(kind, use["source"]), use["target"], "ro") for use in service.get(kind, [])]
        return Container(self.image, f"incrowd-{name}", self.folder, service["command"], mounts, f"/run/netns/{name}").start()

    def database(self, name, service):
        data, log = self.folder / name, open(self.folder / f"{name}.log", "w")
        data.mkdir(mode=0o700)
        password = self.folder / f"{name}.password"
        shutil.copy(self.file("secrets", service["secrets"][0]["source"]), password)
        for path in (data, password):
            shutil.chown(path, "postgres", "postgres")
        user = service["environment"]["POSTGRES_USER"]
        as_postgres = ("ip", "netns", "exec", name, "runuser", "-u", "postgres", "--")
        options = service["environment"]["POSTGRES_INITDB_ARGS"].split()
        make = [f"{POSTGRES}/initdb", "-D", data, "-U", user, f"--pwfile={password}", "--auth-local=trust", *options]
        run(*as_postgres, *make, cwd="/")
        with open(data / "pg_hba.conf", "a") as access:
            access.write("host all all all scram-sha-256\n")
        single = [*as_postgres, f"{POSTGRES}/postgres", "--single", "-D", data, "postgres"]
        run(*single, input=f"CREATE DATABASE {service['environment']['POSTGRES_DB']}\n", cwd="/")
        network = ["-c", "listen_addresses=*", "-c", "unix_socket_directories="]
        command = [f"{POSTGRES}/postgres", *service["command"][1:], "-D", str(data), *network]
        return subprocess.Popen([*as_postgres, *command], stdout=log, stderr=log, cwd="/")

    def balancer(self, name, service):
        settings, log = self.folder / "haproxy.cfg", open(self.folder / f"{name}.log", "w")
        text = self.file("configs", service["configs"][0]["source"]).read_text()
        for use in service["configs"]:
            text = text.replace(use["target"], str(self.file("configs", use["source"])))
        settings.write_text(text)
        # Fewer connections, where the limit of open files is low.
        command = ["ip", "netns", "exec", name, "haproxy", "-db", "-n", "1000", "-f", settings]
        return subprocess.Popen(command, stdout=log, stderr=log)

    def healthy(self, name, service):
        """Waits for the service's own health check."""
        running, began = self.running[name], time.monotonic()
        test = service["healthcheck"]["test"][1:]
        while time.monotonic() - began < 180:
            if isinstance(running, Container):
                code, said = running.inside(*test)
            else:
                done = subprocess.run(["ip", "netns", "exec", name, *test], capture_output=True, text=True)
                code, said = done.returncode, done.stdout + done.stderr
            if code == 0:
                return time.monotonic() - began
            time.sleep(0.2)
        sys.exit(f"{name} is not healthy: {said}\n{running.said() if isinstance(running, Container) else ''}")

    def start(self):
        kinds = {"postgres": self.database, "haproxy": self.balancer}
        for name, service in self.services.items():
            hosts = self.networks.hosts(name, service)
            for part, begin in kinds.items():
                if f"/{part}:" in service["image"]:
                    self.running[name] = begin(name, service)
                    break
            else:
                self.running[name] = self.container(name, service, hosts)
            if name.startswith("postgres"):
                self.healthy(name, service)
        self.networks.publish()
        for name, service in self.services.items():
            print(f"{name}: healthy {self.healthy(name, service):.1f} s later", flush=True)

    def load(self, number, reports):
        """Accepted reports, of those that devices sent to the published port."""
        folder = self.folder / f"devices-{number}"
        shutil.copytree(self.made / "devices", folder)
        shutil.copy(self.made / "task.toml", folder)
        for path in (folder, *folder.iterdir()):
            os.chown(path, self.image.user, self.image.group)
        hosts = self.networks.hosts("devices", {"extra_hosts": ["shuffler.example:host-gateway"]})
        arguments = [*LOAD.split(), "--reports", str(reports), "--connections", "8"]
        mounts = [(hosts, "/etc/hosts", "ro"), (folder, "/var/lib/incrowd")]
        load = Container(self.image, f"incrowd-load-{number}", self.folder, arguments, mounts, "/run/netns/devices").start()
        load.wait(300)
        outcome = re.search(r"^accepted +(\d+)$", load.said(), flags=re.M)
        if not outcome:
            sys.exit(f"no report was accepted\n{load.said()}")
        return int(outcome[1])

    def progress(self, name, pattern):
        """What a service says of its task, by its own health check's command."""
        command = self.services[name]["healthcheck"]["test"][-1].removesuffix(" > /dev/null")
        code, said = self.running[name].inside(*command.split())
        found = re.search(pattern, said)
        if code or not found:
            sys.exit(f"{name}: {said}")
        return [int(number) for number in found.groups()]

    def released(self, round):
        """Reports in the batches before this round."""
        sizes = [stage["size"] for stage in self.schedule for _ in range(stage["rounds"])]
        return sum(sizes[: round - 1])

    def main(self):
        self.start()
        first = self.load(0, REPORTS[0])
        killed = self.running.pop("shuffler-1")
        killed.end("KILL")
        print(f"{first} of {REPORTS[0]} reports accepted; shuffler-1 is killed", flush=True)
        # The balancer notices within two checks.
        time.sleep(5)
        second = self.load(1, REPORTS[1])
        time.sleep(2)
        round, open_reports = self.progress("shuffler-2", r"round (\d+) with (\d+) reports")
        counted = self.released(round) + open_reports
        deadline = time.monotonic() + 60
        while (model := self.progress("bandit", r"after (\d+) rounds")[0]) != round - 1 and time.monotonic() < deadline:
            time.sleep(1)
        print(f"{second} of {REPORTS[1]} reports accepted; {counted} counted, {round - 1} rounds released, model of {model}")
        ended = {name: one.end() for name, one in self.running.items() if isinstance(one, Container)}
        if counted != first + second or model != round - 1 or round < 3 or any(ended.values()):
            sys.exit(f"accepted {first + second}, counted {counted}, model of round {model}, exit codes {ended}")
        print("every accepted report is counted once, every service ended with exit code 0")


def main():
    if os.environ.get("INCROWD_TRIAL") != "inside":
        # Networks, mounts and processes of their own, which end with this script.
        inside = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        environment = {**os.environ, "INCROWD_TRIAL": "inside"}
        sys.exit(subprocess.run([*inside, sys.executable, *sys.argv], env=environment).returncode)
    del os.environ["INCROWD_TRIAL"]
    archive = sys.argv[1] if len(sys.argv) > 1 else "target/image/incrowd.tar"
    for name in ("run", "etc/netns"):
        pathlib.Path("/", name).mkdir(exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", f"/{name}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        folder.chmod(0o711)
        run("mount", "-t", "tmpfs", "-o", "mode=711", "tmpfs", folder)
        Trial(archive, folder).main()


main()
