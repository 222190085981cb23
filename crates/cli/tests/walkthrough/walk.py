"""Pastes the shell commands of the documents, in order, into a fresh folder, as a new operator would.

Every block fenced as sh, and every indented block that begins with a command of ours, is run by bash with `-euo pipefail`;
a document's blocks share one folder. A service (`incrowd serve`, `shuffler`, `bandit`, `relay`) runs until the section
ends and must then end well on SIGTERM. A block that cannot run here has a line before it that says why,
`<!-- walk: skip: reason -->`; these, and commands of the laboratory and of cargo, are listed. A document whose blocks need
files of a clone finds `crates` and `docs` in its folder.

`python3 crates/cli/tests/walkthrough/walk.py target/debug/incrowd`
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

DOCUMENTS = ["README.md", "docs/tutorial.md", "docs/operations.md"]
OURS = ("incrowd ", "incrowd-lab ", "cargo ", "export INCROWD")
SKIP = re.compile(r"<!-- walk: skip: (.*) -->")
# Whoever pastes waits for a service to be ready, and has neither the laboratory nor a compiler here.
PRELUDE = r"""
set -euo pipefail
not_here() { printf '%s\n' "$*" >> "$WALK/not-here"; }
incrowd-lab() { not_here incrowd-lab "$@"; }
cargo() { not_here cargo "$@"; }
incrowd() {
    case "$1" in
        serve | shuffler | bandit | relay) ;;
        *) command incrowd "$@"; return ;;
    esac
    local n; n=$(ls "$WALK/services" | wc -l)
    local at=$WALK/services/$n
    mkdir "$at"
    command incrowd "$@" > "$at/out" 2> "$at/err" < /dev/null &
    echo $! > "$at/pid"
    for _ in $(seq 600); do
        if grep -q "$([ "$1" = relay ] && echo '^listening on ' || echo '^task ')" "$at/out"; then return; fi
        kill -0 $! 2> /dev/null || { cat "$at/err" >&2; return 1; }
        sleep 0.05
    done
    echo "incrowd $1 does not get ready" >&2; cat "$at/err" >&2; return 1
}
"""


def blocks(page):
    """Title of the section, reason to skip or None, and the text of each block."""
    title, skip, fence, block = "", None, None, []
    lines = iter(page.splitlines() + [""])
    for line in lines:
        if fence is not None:
            if line.startswith("```"):
                if fence == "sh":
                    yield title, skip, "\n".join(block)
                fence, skip, block = None, None, []
            else:
                block.append(line)
        elif line.startswith("```"):
            fence = line[3:].strip()
        elif line.startswith("## "):
            title = line[3:]
        elif SKIP.fullmatch(line):
            skip = SKIP.fullmatch(line).group(1)
        elif line.startswith("    ") and (block or line.strip().startswith(OURS)):
            block.append(line[4:])
        elif block:
            yield title, skip, "\n".join(block)
            skip, block = None, []


class Walk:
    """A document in its folder."""

    def __init__(self, incrowd, root, folder):
        self.folder, self.own = folder / "here", folder / "walk"
        self.folder.mkdir()
        (self.own / "services").mkdir(parents=True)
        (self.own / "bin").mkdir()
        (self.own / "bin/incrowd").symlink_to(incrowd)
        for name in ("crates", "docs"):
            (self.folder / name).symlink_to(root / name)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("INCROWD_")}
        self.environment = clean | {"PATH": f"{self.own / 'bin'}:{clean['PATH']}", "WALK": str(self.own)}

    def run(self, block):
        # To a file: a pipe would stay open as long as a service does.
        with open(self.own / "output", "w+") as output:
            script = PRELUDE + block
            done = subprocess.run(
                ["bash", "-c", script], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
            output.seek(0)
            return done.returncode, output.read()

    def stop(self):
        """Ends the services of a section; what did not end well."""
        wrong = []
        for at in sorted((self.own / "services").iterdir()):
            pid = int((at / "pid").read_text())
            try:
                os.kill(pid, signal.SIGTERM)
                for _ in range(600):
                    # Whoever adopts it may not look how it ended.
                    if pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                        raise ProcessLookupError
                    time.sleep(0.05)
                wrong.append(f"a service does not end: {(at / 'err').read_text()}")
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, FileNotFoundError):
                pass
            if "panicked" in (at / "err").read_text():
                wrong.append((at / "err").read_text())
            shutil.rmtree(at)
        return wrong


def walk(incrowd, root, name):
    ran, skipped = 0, []
    with tempfile.TemporaryDirectory() as folder:
        walk = Walk(incrowd, root, pathlib.Path(folder))
        section = None
        try:
            for title, skip, block in blocks((root / name).read_text()):
                if title != section:
                    if wrong := walk.stop():
                        raise SystemExit(f"{name}, {section}:\n" + "\n".join(wrong))
                    section = title
                first = block.strip().splitlines()[0]
                if skip:
                    skipped.append(f"{first} ({skip})")
                    continue
                code, output = walk.run(block)
                if code:
                    raise SystemExit(f"{name}, {title}: exit code {code}\n\n{block}\n\n{output}")
                ran += 1
        finally:
            wrong = walk.stop()
        if wrong:
            raise SystemExit(f"{name}, {section}:\n" + "\n".join(wrong))
        not_here = walk.own / "not-here"
        skipped += [f"{line} (not the product)" for line in not_here.read_text().splitlines()] if not_here.exists() else []
    if not ran:
        raise SystemExit(f"{name}: there is nothing to run")
    print(f"{name}: {ran} blocks ran")
    for line in skipped:
        print(f"  not run: {line}")


def main():
    if "WALK_ALONE" not in os.environ:
        # The documents name ports, which others of this machine may use: a network of our own has them all.
        alone = ["unshare", "--map-root-user", "--net"]
        if subprocess.run([*alone, "true"], capture_output=True).returncode == 0:
            inner = 'ip link set lo up && exec "$@"'
            command = [*alone, "sh", "-c", inner, "sh", sys.executable, *sys.argv]
            sys.exit(subprocess.run(command, env=os.environ | {"WALK_ALONE": "1"}).returncode)
    root = pathlib.Path(__file__).resolve().parents[4]
    began = time.monotonic()
    for name in DOCUMENTS:
        walk(pathlib.Path(sys.argv[1]).resolve(), root, name)
    print(f"{time.monotonic() - began:.0f} s")


main()
