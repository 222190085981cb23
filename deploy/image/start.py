"""Starts the image without a daemon, as root: `python3 deploy/image/start.py [target/image/incrowd.tar]`; needs Debian's runc.

Runs containers as a cluster would: as the image's user, without capabilities, on a read-only root file system, with a
network of their own and one writable folder. A service must become ready, count real reports, read its files again when
the image's busybox sends SIGHUP, refuse to write elsewhere, and end in good order.
"""

import os
import pathlib
import sys
import tempfile
import time

from oci import Container, Image

DATA = "/var/lib/incrowd"
# Batches close when they are full: reports count at once.
PLAN = "plan --dimension 5 --horizon 20000 --central-epsilon 1 --task-file task.toml"
SERVE = "serve --task task.toml"
LOAD = "load --url http://127.0.0.1:8787 --task task.toml --token-file incrowd-data/device.token --reports 200 --connections 1"
READY = "wget -q -O - http://127.0.0.1:8788/readyz"


def main():
    archive = sys.argv[1] if len(sys.argv) > 1 else "target/image/incrowd.tar"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        image, data = Image(archive, folder), folder / "data"
        data.mkdir(mode=0o700)
        os.chown(data, image.user, image.group)
        assert DATA in image.config["Volumes"]
        start = lambda name, arguments: Container(image, name, folder, arguments.split(), [(data, DATA)]).start()
        plan = start("incrowd-start-plan", PLAN)
        if plan.wait():
            sys.exit(plan.said())
        began = time.monotonic()
        service = start("incrowd-start-serve", SERVE)
        busybox = lambda command: service.inside("/bin/busybox", *command.split())
        try:
            while busybox(READY)[0]:
                if service.process.poll() is not None or time.monotonic() - began > 60:
                    sys.exit(f"the service is not ready\n{service.said()}")
                time.sleep(0.05)
            ready = time.monotonic() - began
            code, said = service.inside("/usr/bin/incrowd", *LOAD.split())
            owner = busybox(f"stat -c %u:%a {DATA}/incrowd-data/shuffler.keys")[1].strip()
            elsewhere = busybox("touch /tmp/file")[1]
            again = busybox("kill -HUP 1")
            time.sleep(0.5)
            rights = " ".join(busybox("grep -E ^(CapEff|NoNewPrivs): /proc/1/status")[1].split())
        finally:
            ended = service.end()
        if again[0] or "certificates are read again" not in service.said():
            sys.exit(f"SIGHUP: {again}\n{service.said()}")
        if code or ended or owner != f"{image.user}:600" or "Read-only file system" not in elsewhere:
            sys.exit(f"load {code}, end {ended}, keys {owner}, a write elsewhere: {elsewhere}\n{said}\n{service.said()}")
        print(f"ready after {ready:.1f} s, 200 reports counted, SIGHUP taken, {rights}, ended with exit code 0")


main()
