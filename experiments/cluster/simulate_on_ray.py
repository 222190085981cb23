"""One experiment on a Ray cluster without a shared folder: simulate_on_ray.py EXPERIMENT OUT SHARDS"""
import pathlib, subprocess, sys, tempfile
import ray

experiment, out, shards = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]), int(sys.argv[3])

def read(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("*/*.json")}

def join(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)

@ray.remote(num_cpus=1)
def simulate(files, *flags):
    with tempfile.TemporaryDirectory() as folder:
        join(pathlib.Path(folder), files)
        subprocess.run(["incrowd-lab", "simulate", experiment, "--threads=1", "--out", folder, *flags], check=True)
        return read(pathlib.Path(folder))

for phase in ("tune", "run"):
    files = ray.put(read(out))  # what is finished; shards only add to it
    parts = [simulate.remote(files, f"--phase={phase}", f"--shard={i + 1}/{shards}") for i in range(shards)]
    for part in parts:
        join(out, ray.get(part))
subprocess.run(["incrowd-lab", "simulate", sys.argv[1], "--out", out], check=True)
