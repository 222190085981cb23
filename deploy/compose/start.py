"""Starts what compose.yaml describes, without a container engine, as root; kills a node under load, stops and starts both.

`.venv/bin/python deploy/compose/start.py [target/image/incrowd.tar]`; needs Debian's runc, iproute2, haproxy, postgresql
and openssl. The program's containers are those of the image, with the settings, secrets and volumes of compose.yaml. The
databases and the balancer are Debian's programs, in networks like those of containers. Each network of compose.yaml is a
bridge without a way to another one; a published port is handed on by this script, as a container engine does. Every
health check of compose.yaml must pass. Then devices of a network of their own send reports, and:

- shuffler-1 is killed while they do, and started again;
- both nodes end and are started again: the open round must have what it had;
- both end, and the keys of rounds are away: both nodes must refuse to start. With the keys again, they count on;
- at last both end, and the keys are lost: shuffler-1 starts once with `shuffler.accept_lost_round_keys`, which discards the
  open round and nothing else. Then both start without it.

Each accepted report must be in a released batch or in the open one, and nothing else but reports whose sender got no
answer. The bandit must have a model of the last release. No node may be a superuser of a database.
"""

import asyncio
import os
import pathlib
import re
import shutil
import stat
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
# More than two batches of the plan, over both loads. The first one takes ten seconds, and the kill comes after three.
REPORTS = (1500, 1200)
RATE, KILL_AFTER = 150, 3
ACCEPT = "INCROWD_SHUFFLER__ACCEPT_LOST_ROUND_KEYS=true"
RIGHTS = """SELECT DISTINCT rolname, rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication OR rolbypassrls
    FROM pg_stat_activity JOIN pg_roles ON rolname = usename WHERE application_name = 'incrowd'"""


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode:
        sys.exit(f"{command}: {done.returncode}\n{done.stdout}")
    return done.stdout


def wait_until(condition, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"not within {seconds} s: {what}")
        time.sleep(0.2)


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
        """As a container engine makes it: with owner and mode of the image's folder where it is mounted, else root's."""
        if volume:
            sys.exit(f"the volume {name} has options, which this script does not know")
        folder = self.folder / "volumes" / name
        folder.mkdir(parents=True, mode=0o755)
        uses = [use.split(":") for service in self.services.values() for use in service.get("volumes", [])]
        for target in {target for source, target in uses if source == name}:
            if (found := self.image.root / target.lstrip("/")).is_dir():
                folder.chmod(stat.S_IMODE(found.stat().st_mode))
                os.chown(folder, found.stat().st_uid, found.stat().st_gid)
        return folder

    def container(self, name, service, hosts, label="", environment=()):
        mounts = [(hosts, "/etc/hosts", "ro")]
        for use in service.get("volumes", []):
            source, target = use.split(":")
            mounts.append((self.volumes[source], target))
        for kind in ("configs", "secrets"):
            mounts += [(self.file(kind, use["source"]), use["target"], "ro") for use in service.get(kind, [])]
        return Container(
            self.image, f"incrowd-{name}{label}", self.folder, service["command"], mounts, f"/run/netns/{name}", environment
        )

    def local(self, name, service, kind, suffix=""):
        """A service's file of configs or secrets, where this machine's programs find the files that it names."""
        use, = [use for use in service[kind] if use["target"].endswith(suffix)]
        text = self.file(kind, use["source"]).read_text()
        for other in [*service.get("configs", []), *service.get("secrets", [])]:
            text = text.replace(other["target"], str(self.folder / f"{name}-{other['source']}"))
        file = self.folder / f"{name}-{use['source']}"
        file.write_text(text)
        return file

    def database(self, name, service):
        """A server that begins as one of the image of PostgreSQL does: made by the superuser, who runs database.sql."""
        data, log = self.folder / name, open(self.folder / f"{name}.log", "w")
        data.mkdir(mode=0o700)
        superuser = self.local(name, service, "secrets", "postgres.password")
        files = [superuser, self.local(name, service, "secrets", "incrowd.password"), self.local(name, service, "configs", ".sql")]
        for path in (data, *files):
            shutil.chown(path, "postgres", "postgres")
            path.chmod(0o700 if path == data else 0o600)
        as_postgres = ("ip", "netns", "exec", name, "runuser", "-u", "postgres", "--")
        options = service["environment"]["POSTGRES_INITDB_ARGS"].split()
        make = [f"{POSTGRES}/initdb", "-D", data, "-U", "postgres", f"--pwfile={superuser}", "--auth-local=trust", *options]
        run(*as_postgres, *make, cwd="/")
        with open(data / "pg_hba.conf", "a") as access:
            access.write("host all all all scram-sha-256\n")
        server = lambda *settings: [*as_postgres, f"{POSTGRES}/postgres", *service["command"][1:], "-D", str(data), *settings]
        inside = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={data}"]
        first = subprocess.Popen(server(*inside), stdout=log, stderr=log, cwd="/")
        psql = [f"{POSTGRES}/psql", "-v", "ON_ERROR_STOP=1", "--no-psqlrc", "-h", data, "-U", "postgres", "-d", "postgres"]
        wait_until(lambda: not subprocess.run([f"{POSTGRES}/pg_isready", "-q", "-h", data]).returncode, f"{name} starts")
        run(*as_postgres, *psql, "-f", files[2], cwd="/")
        run(*as_postgres, f"{POSTGRES}/pg_ctl", "-D", data, "-w", "-m", "fast", "stop", cwd="/")
        first.wait(60)
        network = ["-c", "listen_addresses=*", "-c", "unix_socket_directories="]
        return subprocess.Popen(server(*network), stdout=log, stderr=log, cwd="/")

    def rights(self, name):
        """The roles that nodes have in a database, each with whether it may do more than an ordinary one."""
        password = (self.folder / f"{name}-{name[-1]}-incrowd-password").read_text().strip()
        psql = [f"{POSTGRES}/psql", "-h", "127.0.0.1", "-U", "incrowd", "-d", "incrowd", "-Atc", RIGHTS]
        environment = {**os.environ, "PGPASSWORD": password}
        return run("ip", "netns", "exec", name, *psql, env=environment).strip()

    def balancer(self, name, service):
        self.local(name, service, "configs", "authority.pem")
        settings, log = self.local(name, service, "configs", "haproxy.cfg"), open(self.folder / f"{name}.log", "w")
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
                self.running[name] = self.container(name, service, hosts).start()
            if name.startswith("postgres"):
                self.healthy(name, service)
        self.networks.publish()
        for name, service in self.services.items():
            print(f"{name}: healthy {self.healthy(name, service):.1f} s later", flush=True)

    def load(self, number, reports, *more):
        """Devices that begin to send reports to the published port."""
        folder = self.folder / f"devices-{number}"
        shutil.copytree(self.made / "devices", folder)
        shutil.copy(self.made / "task.toml", folder)
        for path in (folder, *folder.iterdir()):
            os.chown(path, self.image.user, self.image.group)
        hosts = self.networks.hosts("devices", {"extra_hosts": ["shuffler.example:host-gateway"]})
        arguments = [*LOAD.split(), "--reports", str(reports), "--connections", "8", *more]
        mounts = [(hosts, "/etc/hosts", "ro"), (folder, "/var/lib/incrowd")]
        return Container(self.image, f"incrowd-load-{number}", self.folder, arguments, mounts, "/run/netns/devices").start()

    def outcome(self, load):
        """Of the reports of a load: how many were accepted, and how many may count because no answer says what became of them."""
        load.wait(300)
        sums = re.findall(r"^(accepted|unavailable|no answer.*?) +(\d+)$", load.said(), flags=re.M)
        accepted = sum(int(number) for name, number in sums if name == "accepted")
        if not accepted:
            sys.exit(f"no report was accepted\n{load.said()}")
        return accepted, sum(int(number) for name, number in sums if name != "accepted")

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

    def counted(self, node):
        """Reports that a node knows of, in batches and in the open round, and the round."""
        round, open_reports = self.progress(node, r"round (\d+) with (\d+) reports")
        return self.released(round) + open_reports, round

    def end(self, names):
        for name in names:
            if code := self.running[name].end():
                sys.exit(f"{name} ended with exit code {code}\n{self.running[name].said()}")

    def begin(self, names):
        for name in names:
            self.running[name].start()
        return max(self.healthy(name, self.services[name]) for name in names)

    def kill(self):
        """Kills a node while devices send, and starts it again."""
        load = self.load(0, REPORTS[0], "--rate", str(RATE))
        time.sleep(KILL_AFTER)
        self.running["shuffler-1"].end("KILL")
        if load.process.poll() is not None:
            sys.exit("the load ended before the kill")
        accepted, unknown = self.outcome(load)
        self.begin(["shuffler-1"])
        print(f"shuffler-1 killed under load: {accepted} of {REPORTS[0]} reports accepted, {unknown} without an answer", flush=True)
        return accepted, unknown

    def stop_all(self, nodes):
        """Ends both nodes and starts both: the open round is what it was."""
        before = self.counted(nodes[0])
        self.end(nodes)
        seconds = self.begin(nodes)
        after = [self.counted(name) for name in nodes]
        if after != [before, before]:
            sys.exit(f"before both nodes ended {before}, afterwards {after}")
        print(f"both nodes ended and began again: {before[0]} reports before and after, healthy {seconds:.1f} s later", flush=True)

    def other_medium(self, nodes):
        """Without the keys of rounds no node starts; with them the round goes on."""
        before = self.counted(nodes[0])
        self.end(nodes)
        volume = self.volumes["a-round-keys"]
        aside = volume.with_name("aside")
        (volume / "keys").rename(aside)
        for name in nodes:
            code = self.running[name].start().wait()
            if not code or "the medium of round keys" not in self.running[name].said():
                sys.exit(f"{name} started without the keys of rounds, or failed otherwise: {code}\n{self.running[name].said()}")
        shutil.rmtree(volume / "keys")
        aside.rename(volume / "keys")
        self.begin(nodes)
        if (after := self.counted(nodes[1])) != before:
            sys.exit(f"before the medium was away {before}, afterwards {after}")
        print("without the keys of rounds both nodes refuse to start; with them the round goes on", flush=True)

    def lost_medium(self, nodes):
        """The open round is discarded by the one node that is told to."""
        (_, round), name = self.counted(nodes[0]), nodes[0]
        self.end(nodes)
        shutil.rmtree(self.volumes["a-round-keys"] / "keys")
        ordinary, hosts = self.running[name], self.folder / f"{name}.hosts"
        self.running[name] = self.container(name, self.services[name], hosts, "-accepting", [ACCEPT]).start()
        self.healthy(name, self.services[name])
        self.end([name])
        self.running[name] = ordinary
        self.begin(nodes)
        if any((after := self.counted(name)) != (self.released(round), round) for name in nodes):
            sys.exit(f"the loss of the keys of round {round} was accepted; then there were {after}")
        print(f"keys of rounds lost and accepted once: round {round} begins anew, both nodes start without the setting")

    def main(self):
        self.start()
        for name in ("postgres-a", "postgres-b"):
            if (rights := self.rights(name)) != "incrowd|f":
                sys.exit(f"{name}: nodes have these roles, some with too many rights: {rights}")
        nodes = ["shuffler-1", "shuffler-2"]
        first, unknown = self.kill()
        self.stop_all(nodes)
        self.other_medium(nodes)
        # The balancer notices within a check.
        time.sleep(3)
        second, more = self.outcome(self.load(1, REPORTS[1]))
        unknown += more
        time.sleep(2)
        counted, round = self.counted("shuffler-2")
        wait_until(lambda: self.progress("bandit", r"after (\d+) rounds")[0] == round - 1, f"a model of round {round - 1}")
        print(f"{second} of {REPORTS[1]} more accepted; {counted} counted in all, {round - 1} rounds released and in the model")
        if not 0 <= counted - first - second <= unknown or round < 3:
            sys.exit(f"accepted {first + second}, without an answer {unknown}, counted {counted}, round {round}")
        self.lost_medium(nodes)
        self.end([name for name, one in self.running.items() if isinstance(one, Container)])
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
