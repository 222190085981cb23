"""Image, compose file and Kubernetes manifests agree with the program, with their settings and with deploy/README.md.

`check.py` calls `containers`. Nothing here needs a container engine, a cluster or the network.
"""

import json
import pathlib
import re
import subprocess
import tempfile
import tomllib

import yaml

root = pathlib.Path(__file__).resolve().parent.parent
deploy = root / "deploy"

PARTS = {"shuffler": "operator-a", "bandit": "operator-b", "relay": "relay"}
# Who asks whom.
TOKENS = {
    "operator-a": {"device", "bandit", "relay", "admin", "monitor"},
    "operator-b": {"admin", "monitor"},
}
API = {
    "Namespace": "v1",
    "Service": "v1",
    "PersistentVolumeClaim": "v1",
    "Deployment": "apps/v1",
    "PodDisruptionBudget": "policy/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "Kustomization": "kustomize.config.k8s.io/v1beta1",
}
RESTRICTED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


class Settings:
    """A file of settings: what it says of ports and of other files."""

    def __init__(self, path):
        self.text, self.role = path.read_text(), path.stem
        self.values = tomllib.loads(self.text)
        self.port = self.port_of("listen")
        self.admin = self.port_of("admin_listen")
        self.data = self.values.get("data")
        self.folders = [self.data] if self.data else []
        self.round_keys = self.values.get("shuffler", {}).get("round_keys", {})
        if "path" in self.round_keys:
            self.folders.append(self.round_keys["path"])
        # The role of the database, if there is one.
        found = re.match(r"postgres://(\w+)@", self.values.get("store", ""))
        self.database_role = found[1] if found else None
        paths = re.findall(r'"(/[^"]*)"', re.sub(r"^\s*#.*", "", self.text, flags=re.M))
        self.files = set(paths) - set(self.folders)

    def port_of(self, name):
        return int(self.values[name].rpartition(":")[2])


class Check:
    """Everything that is checked, with what is wrong so far."""

    def __init__(self, incrowd, plan, environment, expect):
        self.incrowd, self.plan, self.environment, self.expect = incrowd, plan, environment, expect
        self.probes = {path for path in json.loads((root / "crates/node/src/openapi.json").read_text())["paths"]}
        self.containerfile = (deploy / "image/Containerfile").read_text()
        self.user = re.search(r"^USER (\d+):(\d+)$", self.containerfile, flags=re.M).groups()
        version = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["package"]["version"]
        self.image = f"incrowd:{version}"
        self.readme = (deploy / "README.md").read_text()
        self.systemd = (deploy / "systemd/README.md").read_text()
        owned = re.search(r"--owner=65532 --group=65532 --mode=700 (.+)$", (deploy / "image/build").read_text(), flags=re.M)
        self.folders = {path.removeprefix(".") for path in owned[1].split()}

    def run(self, *command):
        command = [str(part) for part in command]
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment)
        return done.returncode, done.stdout + done.stderr

    def settings(self, path):
        """The program takes the settings; their ports are among the image's."""
        found = Settings(path)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / path.name
            file.write_text(found.text)
            if found.role == "relay":
                # A relay's settings are read before the files that they name, which are not here.
                _, said = self.run(self.incrowd, "relay", "--config", file)
                taken = any(said.startswith(("error: " + name, f"error: there is no token file {name}")) for name in found.files)
            else:
                code, said = self.run(self.incrowd, "config", "show", "--config", file)
                taken = code == 0
            self.expect(taken, f"{path} is not taken: {said}")
        if found.role == "shuffler" and found.database_role:
            # After a restart of all nodes at once no node would start.
            kept = found.round_keys.get("kind") in ("file", "command")
            self.expect(kept, f"{path}: keys of rounds of a shared store are in memory")
        exposed = re.search(r"^EXPOSE (.+)$", self.containerfile, flags=re.M)[1].split()
        self.expect({str(found.port), str(found.admin)} <= set(exposed), f"{path}: the image does not expose its ports")
        return found

    def compose(self):
        """References, ports, probes and rights of compose.yaml; no party has a network or a secret of another one."""
        folder, expect = deploy / "compose", self.expect
        text = (folder / "compose.yaml").read_text()
        whole = yaml.safe_load(text)
        services = whole["services"]
        names = lambda service, kind: [use["source"] if isinstance(use, dict) else use for use in service.get(kind, [])]
        for kind in ("networks", "configs", "secrets"):
            used = {name for service in services.values() for name in names(service, kind)}
            expect(used == set(whole[kind]), f"compose.yaml: {kind} used and defined differ by {used ^ set(whole[kind])}")
        volumes = {name: [use.split(":") for use in service.get("volumes", [])] for name, service in services.items()}
        used = {source for uses in volumes.values() for source, _ in uses}
        expect(used == set(whole["volumes"]), f"compose.yaml: volumes used and defined differ by {used ^ set(whole['volumes'])}")
        self.made(folder, [part["file"] for kind in ("configs", "secrets") for part in whole[kind].values()])
        for name, service in services.items():
            parties = {re.match(r"operator-[ab]|relay", network)[0] for network in service["networks"]}
            expect(len(parties) == 1, f"compose.yaml: {name} is in networks of {parties}")
            if len(parties) > 1:
                continue
            party = parties.pop()
            prefix = party.removeprefix("operator-") + "-"
            foreign = [secret for secret in names(service, "secrets") if not secret.startswith(prefix)]
            expect(not foreign, f"compose.yaml: {name} of {party} has {foreign}")
            expect(service["healthcheck"]["test"][0] == "CMD" and service["restart"], f"compose.yaml: {name} has no health check")
            expect(set(service.get("depends_on", [])) <= set(services), f"compose.yaml: {name} depends on nothing that is there")
            if name.startswith("postgres"):
                self.database(name, service, whole["configs"])
                inside = all(whole["networks"][network].get("internal") for network in service["networks"])
                expect(inside and "ports" not in service, f"compose.yaml: {name} can be reached from outside")
            if service["image"] != f"${{INCROWD_IMAGE:-{self.image}}}":
                expect("incrowd" not in service["image"], f"compose.yaml: {name} has another image than {self.image}")
                continue
            role = service["command"][0]
            expect(PARTS[role] == party, f"compose.yaml: {name} runs a {role} for {party}")
            found = self.settings(folder / party / f"{role}.toml")
            self.service(name, service, found, volumes[name])
        nodes = [name for name, service in services.items() if service.get("command", [""])[0] == "shuffler"]
        at = lambda path: {source for name in nodes for source, where in volumes[name] if f"{path}/".startswith(f"{where}/")}
        keys = at(Settings(folder / "operator-a/shuffler.toml").round_keys["path"])
        expect(len(keys) == 1, "compose.yaml: nodes of the shuffler do not share the keys of rounds")
        for name in keys:
            expect(not whole["volumes"][name], f"compose.yaml: the volume {name} may not outlive the nodes")
            users = {service for service, uses in volumes.items() if name in dict(uses)}
            expect(users == set(nodes), f"compose.yaml: the volume {name} is also for {users - set(nodes)}")
        expect(len(at("/var/lib/incrowd")) == len(nodes) > 1, "compose.yaml: nodes of the shuffler share a data folder")
        balancer = (folder / "operator-a/haproxy.cfg").read_text()
        targets = re.findall(r"^    server (\S+) (\S+):(\d+)$", balancer, flags=re.M)
        port = str(Settings(folder / "operator-a/shuffler.toml").port)
        expect(targets == [(name, name, port) for name in nodes], "haproxy.cfg: its servers are not the nodes of the shuffler")
        expect(services["balancer"]["ports"] == [f"{port}:{port}"], "compose.yaml: the balancer's port is not the shuffler's")
        probed = re.search(r"uri (\S+)", balancer)[1], int(re.search(r"check port (\d+)", balancer)[1])
        admin = Settings(folder / "operator-a/shuffler.toml").admin
        expect(probed[0] in self.probes and probed[1] == admin, f"haproxy.cfg: checks {probed}")
        expect(not re.search(r"^\s*(log|option tcplog)\b", balancer, flags=re.M), "haproxy.cfg: logs when reports come")

    def service(self, name, service, found, volumes):
        """One container of the program: few rights, its files are mounted, its probe and ports are those of the settings."""
        expect = self.expect
        less = service["read_only"] and service["cap_drop"] == ["ALL"] and "no-new-privileges:true" in service["security_opt"]
        expect(less and service["user"] == ":".join(self.user), f"compose.yaml: {name} has too many rights")
        mounted = {use["target"] for kind in ("configs", "secrets") for use in service.get(kind, [])}
        absent = found.files - mounted
        expect(not absent, f"compose.yaml: {name} lacks {absent}")
        targets = {target for _, target in volumes}
        absent = [path for path in found.folders if not any(f"{path}/".startswith(f"{target}/") for target in targets)]
        expect(not absent, f"compose.yaml: {name} has no volume for {absent}")
        # Elsewhere a new volume belongs to root.
        absent = targets - self.folders
        expect(not absent, f"compose.yaml: {name} has volumes where the image has no folder of its user: {absent}")
        if found.data:
            keys = {f"{found.data}/{found.role}.keys", f"{found.data}/tokens.toml"}
            expect(keys <= mounted, f"compose.yaml: {name} lacks {keys - mounted}")
        if "ports" in service:
            expect(service["ports"] == [f"{found.port}:{found.port}"], f"compose.yaml: {name} publishes {service['ports']}")
        test = service["healthcheck"]["test"][-1]
        if found.role == "relay":
            address = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/\w+)", test)
            right = address and int(address[1]) == found.admin and address[2] in self.probes
        else:
            words = test.split()
            right = words[:3] == ["/usr/bin/incrowd", "task", "list"] and f"https://localhost:{found.admin}" in words
            files = {word for word in words if word.startswith(("/etc/", "/run/"))}
            expect(files <= mounted, f"compose.yaml: the probe of {name} lacks {files - mounted}")
        expect(right, f"compose.yaml: {name} is probed by {test}")

    def database(self, name, service, configs):
        """The nodes' role is not the superuser, owns its database only, and deploy/ says the same elsewhere."""
        role = Settings(next((deploy / "compose").glob(f"operator-{name[-1]}/*.toml"))).database_role
        settings = service["environment"]
        others = {settings.get("POSTGRES_USER", "postgres"), settings.get("POSTGRES_DB", "postgres")}
        self.expect(role and role not in others, f"compose.yaml: the nodes of {name} are its superuser")
        begin = [use["source"] for use in service["configs"] if use["target"].startswith("/docker-entrypoint-initdb.d/")]
        sql = (deploy / "compose" / configs[begin[0]]["file"]).read_text()
        self.expect(sql.count(";\n") == 2, f"compose.yaml: {name} begins with more than a role and a database")
        for statement in (f"CREATE ROLE {role} LOGIN", f"CREATE DATABASE {role} OWNER {role};"):
            for where, text in ((name, sql), ("README.md", self.readme), ("systemd/README.md", self.systemd)):
                self.expect(re.search(rf"^{statement}(;| PASSWORD :'password';)?$", text, flags=re.M), f"deploy: {where} lacks {statement}")
        words = set(re.findall(r"[A-Z]{6,}", sql))
        self.expect(words == {"CREATE", "PASSWORD", "DATABASE"}, f"compose.yaml: {name} gives its role {words}")

    def made(self, folder, files):
        """`prepare` works, and makes the files that are not in the repository."""
        with tempfile.TemporaryDirectory() as name:
            plan, made = pathlib.Path(name) / "plan.toml", pathlib.Path(name) / "made"
            plan.write_text(self.plan)
            code, said = self.run(folder / "prepare", self.incrowd, plan, made)
            self.expect(code == 0, f"deploy/compose/prepare: {said}")
            for operator, roles in TOKENS.items() if code == 0 else ():
                kept = tomllib.loads((made / operator / "tokens.toml").read_text())["token"]
                given = {token["role"] for token in kept}
                self.expect(given == roles, f"deploy/compose/prepare: {operator} takes tokens of {given}")
            for file in files:
                inside = file.removeprefix("./made/")
                there = (made / inside if inside != file else folder / file).is_file()
                self.expect(there, f"compose.yaml: there is no {file}")

    def documented(self):
        """Objects of the README's table that must be there before: (namespace, kind, name) and their files."""
        rows = re.findall(r"^\| `([\w-]+)` \| (Secret|ConfigMap) `([\w-]+)` \| (.+?) \|", self.readme, flags=re.M)
        return {(space, kind, name): set(re.findall(r"`([\w.-]+)`", files)) for space, kind, name, files in rows}

    def kubernetes(self):
        """Objects refer to each other and to documented ones; nodes have few rights; no namespace lets another one in."""
        documented, used = self.documented(), set()
        for role in PARTS:
            folder = deploy / "kubernetes" / role
            used |= Manifests(self, folder, role, documented).check()
        self.expect(used == set(documented), f"deploy/README.md and kubernetes/: objects differ by {used ^ set(documented)}")


class Manifests:
    """What one party applies."""

    def __init__(self, check, folder, role, documented):
        self.outer, self.folder, self.role, self.documented = check, folder, role, documented
        self.custom = yaml.safe_load((folder / "kustomization.yaml").read_text())
        self.space = self.custom["namespace"]
        texts = [(folder / name).read_text() for name in self.custom["resources"]]
        self.objects = [thing for text in texts for thing in yaml.safe_load_all(text)]
        self.found = check.settings(folder / f"{role}.toml")
        self.labels, self.ports, self.used = {}, {}, set()

    def expect(self, condition, text):
        self.outer.expect(condition, f"kubernetes/{self.role}: {text}")

    def of(self, kind):
        return [thing for thing in self.objects if thing["kind"] == kind]

    def check(self):
        listed = set(self.custom["resources"]) | {"kustomization.yaml"}
        self.expect(listed == {path.name for path in self.folder.glob("*.yaml")}, "kustomization.yaml lists other files")
        for thing in [*self.objects, self.custom]:
            self.expect(API.get(thing["kind"]) == thing["apiVersion"], f"{thing['kind']} {thing['apiVersion']}")
        image = self.custom["images"][0]
        tagged = f"{image['name']}:{image['newTag']}"
        self.expect(tagged == self.outer.image, f"the image is {tagged}")
        space, = self.of("Namespace")
        enforced = space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        self.expect((space["metadata"]["name"], enforced) == (self.space, "restricted"), "the namespace")
        deployment, = self.of("Deployment")
        self.deployment(deployment["spec"])
        budget, = self.of("PodDisruptionBudget")
        self.expect(budget["spec"]["maxUnavailable"] < deployment["spec"]["replicas"], "every node may be away at once")
        self.selects("the disruption budget", budget["spec"]["selector"])
        for service in self.of("Service"):
            self.expect(service["spec"]["selector"] == self.labels, f"service {service['metadata']['name']} selects nothing")
            for port in service["spec"]["ports"]:
                self.expect(port["targetPort"] in self.ports, f"no port {port['targetPort']}")
        self.policies()
        return self.used

    def selects(self, what, selector):
        self.expect(selector == {"matchLabels": self.labels}, f"{what} selects other pods")

    def deployment(self, spec):
        pod = spec["template"]["spec"]
        self.labels = spec["template"]["metadata"]["labels"]
        self.selects("the deployment", spec["selector"])
        spread = pod["topologySpreadConstraints"]
        for constraint in spread:
            self.selects("the spread", constraint["labelSelector"])
        self.expect("kubernetes.io/hostname" in [one["topologyKey"] for one in spread], "nodes may be on one machine")
        # Links to services would be variables that begin as settings do.
        self.expect(not pod["automountServiceAccountToken"] and not pod["enableServiceLinks"], "tokens or links of the cluster")
        user, group = map(int, self.outer.user)
        context = pod["securityContext"]
        ids = (context["runAsUser"], context["runAsGroup"], context["fsGroup"], context["runAsNonRoot"])
        self.expect(ids == (user, group, group, True), f"users and groups are {ids}")
        self.expect(context["seccompProfile"] == {"type": "RuntimeDefault"}, "seccomp")
        main, = pod["containers"]
        files = self.volumes(pod)
        for container in [*pod.get("initContainers", []), main]:
            name = container["name"]
            self.expect(container["image"] == "incrowd", f"{name}: another image")
            self.expect(container["securityContext"] == RESTRICTED, f"{name}: too many rights")
            limits = container["resources"]
            self.expect("memory" in limits["limits"] and {"cpu", "memory"} == set(limits["requests"]), f"{name}: resources")
            known = {volume["name"] for volume in pod["volumes"]}
            absent = {mount["name"] for mount in container["volumeMounts"]} - known
            self.expect(not absent, f"{name}: no volumes {absent}")
        self.expect(main["args"][0] == self.role, f"runs {main['args']}")
        self.expect(main["args"][2] in files, f"there is no {main['args'][2]}")
        absent = self.found.files - files
        self.expect(not absent, f"settings name files that are not mounted: {absent}")
        writable = [mount["mountPath"] for mount in main["volumeMounts"] if not mount.get("readOnly")]
        absent = [path for path in self.found.folders if not any(path.startswith(mount + "/") for mount in writable)]
        self.expect(not absent, f"no volume for {absent}")
        if "path" in self.found.round_keys:
            path = self.found.round_keys["path"]
            mounted = {mount["name"] for mount in main["volumeMounts"] if path.startswith(mount["mountPath"] + "/")}
            kept = {volume["name"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume}
            self.expect(mounted and mounted <= kept, "keys of rounds end with the pod")
        self.ports = {port["name"]: port["containerPort"] for port in main["ports"]}
        wanted = {"devices": self.found.port, "admin": self.found.admin}
        if self.role == "relay":
            del wanted["admin"]
        self.expect(self.ports == wanted, f"ports {self.ports}, settings {wanted}")
        for name in ("readinessProbe", "livenessProbe"):
            self.probe(name, main[name])
        paths = [self.path(main[name]) for name in ("readinessProbe", "livenessProbe")]
        self.expect(paths == ["/readyz", "/healthz"], f"probes are {paths}")

    def path(self, probe):
        if "httpGet" in probe:
            return probe["httpGet"]["path"]
        return re.search(r"(/\w+)$", probe["exec"]["command"][-1])[1]

    def probe(self, name, probe):
        self.expect(self.path(probe) in self.outer.probes, f"{name}: the program has no {self.path(probe)}")
        if "httpGet" in probe:
            asked = probe["httpGet"]
            self.expect((asked["port"], asked["scheme"]) == ("admin", "HTTPS"), f"{name}: asks {asked}")
        else:
            asked = probe["exec"]["command"][-1]
            self.expect(asked.startswith(f"http://127.0.0.1:{self.found.admin}/"), f"{name}: asks {asked}")

    def volumes(self, pod):
        """The files that the main container finds at its start."""
        claims = {thing["metadata"]["name"] for thing in self.of("PersistentVolumeClaim")}
        generated = {one["name"]: set(one["files"]) for one in self.custom["configMapGenerator"]}
        contents = {}
        for volume in pod["volumes"]:
            name = volume["name"]
            if "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]["claimName"]
                self.expect(claim in claims, f"there is no claim {claim}")
            elif "emptyDir" in volume:
                self.expect(volume["emptyDir"]["medium"] == "Memory", f"{name} would be on the machine's disk")
            else:
                kind, source = ("Secret", volume["secret"]) if "secret" in volume else ("ConfigMap", volume["configMap"])
                named = source.get("secretName", source.get("name"))
                if kind == "ConfigMap" and named in generated:
                    contents[name] = generated[named]
                    continue
                key = (self.space, kind, named)
                self.used.add(key)
                everything = self.documented.get(key, set())
                chosen = {item["key"] for item in source.get("items", [])} or everything
                self.expect(chosen and chosen <= everything, f"{kind} {named} has no {chosen - everything} in deploy/README.md")
                contents[name] = {item["path"] for item in source.get("items", [])} or everything
        inside = lambda container: {
            f"{mount['mountPath']}/{file}" for mount in container["volumeMounts"] for file in contents.get(mount["name"], [])
        }
        found = inside(pod["containers"][0])
        for container in pod.get("initContainers", []):
            script, sources = container["args"][0], inside(container)
            base = re.search(r"^cd (\S+)$", script, flags=re.M)[1]
            for line in re.findall(r"^cp -f (.+)$", script, flags=re.M):
                *files, target = line.split()
                for file in files:
                    self.expect(f"{base}/{file}" in sources, f"{container['name']} copies {file}, which is not there")
                    found.add(target + file.rpartition("/")[2] if target.endswith("/") else target)
        if self.found.data:
            keys = {f"{self.found.data}/{self.role}.keys", f"{self.found.data}/tokens.toml"}
            self.expect(keys <= found, f"{keys - found} would be missing")
        return found

    def policies(self):
        """Everything is refused first; the operator's listener and the database are for pods of this namespace."""
        policies = {policy["metadata"]["name"]: policy["spec"] for policy in self.of("NetworkPolicy")}
        both = ["Ingress", "Egress"]
        self.expect(policies["nothing"] == {"podSelector": {}, "policyTypes": both}, "nothing is refused first")
        self.selects("the policy of nodes", policies["nodes"]["podSelector"])
        for name, policy in policies.items():
            self.expect(policy["policyTypes"] == both, f"policy {name} is not for both directions")
            for rule in policy.get("ingress", []):
                open_to = [part for part in rule.get("from", []) if set(part) != {"podSelector"}]
                ports = [port["port"] for port in rule["ports"]]
                self.expect(ports == ["devices"] if "from" not in rule else not open_to, f"policy {name} opens {ports}")
                self.expect(name != "nodes" or set(ports) <= set(self.ports), f"policy {name} has ports {ports}")


def containers(incrowd, plan, environment, expect):
    """`plan` is a task without keys."""
    check = Check(incrowd, plan, environment, expect)
    check.compose()
    check.kubernetes()
