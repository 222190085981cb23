"""incrowd's simulator beside other people's contextual bandits: rounds in a second of processor time, all on the same people.

    python3 bench/peers.py

makes bench/.venv-peers with the peers of requirements-peers.txt, builds the Rust side, lets all sides take turns and prints a table.
See the section "Simulator" of bench/README.md.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BENCH = Path(__file__).resolve().parent
VENV = BENCH / ".venv-peers"
DIMENSION, ARMS, BATCH = 10, 10, 100
PEOPLE = 20_000
REPETITIONS = 5
# Passes of Vowpal Wabbit over its cache, batches of contextualbandits, rounds of MABWiser.
PASSES, BATCHES, ROUNDS = 10, 200, 500
# Linear, K arms of d features, explores with probability 0.05: the fastest settings that were found.
VOWPAL_WABBIT = "--quiet --cb_explore_adf --epsilon 0.05 --sgd --noconstant -b 8"


def people():
    """Features (people, arms, d) as in the simulator's synthetic problem, and a reward of each arm."""
    import numpy as np

    rng = np.random.default_rng(1)
    z = rng.standard_normal((PEOPLE, ARMS, DIMENSION - 1))
    z /= np.linalg.norm(z, axis=2, keepdims=True)
    features = np.concatenate([np.ones((PEOPLE, ARMS, 1)), z], axis=2) / 2**0.5
    means = np.clip(features @ features[0, 0], 0, 1)
    return features, (rng.random((PEOPLE, ARMS)) < means).astype(float)


def write(folder):
    """The same people for Rust (doubles) and for Vowpal Wabbit (text and cache)."""
    import numpy as np
    import vowpalwabbit

    features, rewards = people()
    rows = np.concatenate([features.reshape(PEOPLE, -1), rewards], axis=1)
    rows.astype("<f8").tofile(folder / "people.bin")
    played = np.random.default_rng(2).integers(0, ARMS, PEOPLE)
    with open(folder / "people.txt", "w") as file:
        for arms, reward, arm in zip(features, rewards, played):
            for k, x in enumerate(arms):
                label = f"0:{-reward[k]:g}:{1 / ARMS} " if k == arm else ""
                print(label + "| " + " ".join(f"{i}:{v:.6f}" for i, v in enumerate(x)), file=file)
            print(file=file)
    vowpalwabbit.Workspace(f"{VOWPAL_WABBIT} -d {folder}/people.txt --cache_file {folder}/people.cache").finish()


def seconds(work):
    start = time.process_time()
    work()
    return time.process_time() - start


def vowpal_wabbit_text(folder):
    import vowpalwabbit

    return seconds(lambda: vowpalwabbit.Workspace(f"{VOWPAL_WABBIT} -d {folder}/people.txt").finish()) / PEOPLE


def vowpal_wabbit_cache(folder):
    import vowpalwabbit

    # Without --holdout_off it stops early, and rounds would be counted that were never played.
    options = f"-d {folder}/people.txt --cache_file {folder}/people.cache --passes {PASSES} --holdout_off"
    return seconds(lambda: vowpalwabbit.Workspace(f"{VOWPAL_WABBIT} {options}").finish()) / (PASSES * PEOPLE)


def contextualbandits(_):
    import numpy as np
    from contextualbandits.online import LinUCB

    features, rewards = people()
    contexts, row = np.ascontiguousarray(features[:, 0]), np.arange(BATCH)
    model = LinUCB(nchoices=ARMS, method="sm", use_float=False, fit_intercept=False, beta_prior=None, njobs=1, random_state=1)
    model.partial_fit(contexts[:BATCH], row % ARMS, rewards[row, row % ARMS])

    def play():
        for start in range(0, BATCHES * BATCH, BATCH):
            batch = contexts[start % PEOPLE :][:BATCH]
            arms = model.predict(batch)
            model.partial_fit(batch, arms, rewards[start % PEOPLE + row, arms])

    return seconds(play) / (BATCHES * BATCH)


def mabwiser(_):
    from mabwiser.mab import MAB, LearningPolicy

    features, rewards = people()
    contexts = features[:, 0]
    model = MAB(list(range(ARMS)), LearningPolicy.LinUCB(alpha=1.0), seed=1)
    model.fit(list(range(ARMS)), rewards[0], contexts[:ARMS])

    def play():
        for t in range(ROUNDS):
            arm = model.predict(contexts[t : t + 1])
            model.partial_fit([arm], [rewards[t, arm]], contexts[t : t + 1])

    return seconds(play) / ROUNDS


PEERS = {
    "Vowpal Wabbit, text file": vowpal_wabbit_text,
    "Vowpal Wabbit, its binary cache": vowpal_wabbit_cache,
    "contextualbandits LinUCB, batches": contextualbandits,
    "MABWiser LinUCB, every round": mabwiser,
}
KNOWN, DRAWN = "incrowd, known people", "incrowd, drawing the people"
GOALS = [
    (KNOWN, "Vowpal Wabbit, text file", 20),
    (KNOWN, "Vowpal Wabbit, its binary cache", 20),
    (DRAWN, "Vowpal Wabbit, text file", 5),
    (DRAWN, "Vowpal Wabbit, its binary cache", 5),
    (KNOWN, "contextualbandits LinUCB, batches", 10),
    (KNOWN, "MABWiser LinUCB, every round", 500),
]


def built():
    """The program of the Rust bench."""
    command = ["cargo", "bench", "-q", "-p", "incrowd-bench", "--bench", "simulator", "--no-run", "--message-format=json"]
    lines = subprocess.run(command, cwd=BENCH.parent, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    messages = [json.loads(line) for line in lines]
    return next(m["executable"] for m in messages if m.get("executable") and m["target"]["name"] == "simulator")


def compare(program, folder):
    """Processor seconds of a round: the median of each side. Every measurement has a process of its own."""
    times = {}
    for _ in range(REPETITIONS):
        commands = {name: [sys.executable, __file__, "--peer", name, str(folder)] for name in PEERS}
        commands[KNOWN] = [program, "--contexts", str(folder / "people.bin")]
        for name, command in commands.items():
            answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-2:]
            for side, value in zip([KNOWN, DRAWN] if name == KNOWN else [name], answer[-(1 + (name == KNOWN)) :]):
                times.setdefault(side, []).append(float(value))
    return {name: statistics.median(values) for name, values in times.items()}


def main():
    program = built()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        times = compare(program, folder)
    print(f"{'d=10, K=10':<36} {'rounds in a second of processor time':>36}")
    for name, value in times.items():
        print(f"{name:<36} {1 / value:>36,.0f}")
    print(f"\n{'':<36} {'times as fast as':<36} {'ratio':>8} {'goal':>6}")
    for ours, peer, goal in GOALS:
        ratio = times[peer] / times[ours]
        print(f"{ours:<36} {peer:<36} {ratio:>8.1f} {goal:>6} {'met' if ratio >= goal else 'missed'}")
    print(flush=True)
    subprocess.run([program], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        print(PEERS[sys.argv[2]](Path(sys.argv[3])))
    elif sys.argv[1:]:
        sys.exit("bench/peers.py takes no arguments")
    elif Path(sys.prefix) == VENV:
        main()
    else:
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        python = VENV / "bin" / "python"
        requirements = BENCH / "requirements-peers.txt"
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", requirements], check=True)
        one_thread = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        sys.exit(subprocess.run([python, __file__], env=os.environ | one_thread).returncode)
