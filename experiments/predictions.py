#!/usr/bin/env python3
"""Compares what `incrowd plan` predicts with simulations, on settings that no constant was fitted to.

    cargo build --release -p incrowd -p incrowd-lab && python3 experiments/predictions.py

Prints the table of docs/planning.md. Takes about ten minutes on two cores.
"""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

# model, features, shared features, actions, gap, central epsilon, local cap, people, batches
SETTINGS = [
    ("shared", 3, 0, 10, 0.5, 1, "unlimited", 30_000, "fixed"),
    ("shared", 4, 0, 6, 0.4, 1, "unlimited", 60_000, "growing"),
    ("shared", 6, 0, 10, 0.5, 1, "4", 100_000, "fixed"),
    ("shared", 6, 0, 20, 0.15, 2, "unlimited", 150_000, "fixed"),
    ("shared", 8, 0, 4, 0.5, 2, "unlimited", 80_000, "growing"),
    ("shared", 9, 0, 10, 0.5, 1, "8", 60_000, "fixed"),
    ("shared", 11, 0, 10, 0.3, 1, "unlimited", 200_000, "growing"),
    ("shared", 14, 0, 30, 0.5, 1, "unlimited", 150_000, "fixed"),
    ("shared", 18, 0, 10, 0.5, 3, "8", 200_000, "fixed"),
    ("shared", 25, 0, 10, 0.5, 1, "unlimited", 200_000, "growing"),
    ("per-action", 3, 0, 8, 0.5, 1, "unlimited", 100_000, "fixed"),
    ("per-action", 4, 0, 4, 0.5, 1, "unlimited", 50_000, "fixed"),
    ("per-action", 4, 0, 6, 0.5, 1, "8", 100_000, "fixed"),
    ("per-action", 5, 0, 10, 0.5, 2, "unlimited", 150_000, "fixed"),
    ("per-action", 6, 0, 5, 0.3, 1, "unlimited", 200_000, "fixed"),
    ("per-action", 6, 0, 12, 0.5, 1, "4", 200_000, "fixed"),
    ("per-action", 7, 0, 6, 0.5, 1, "8", 200_000, "fixed"),
    ("per-action", 9, 0, 15, 0.5, 1, "unlimited", 200_000, "fixed"),
    ("per-action", 10, 0, 4, 0.5, 1, "unlimited", 80_000, "growing"),
    ("per-action", 14, 0, 8, 0.5, 2, "unlimited", 200_000, "fixed"),
    ("hybrid", 5, 2, 8, 0.5, 1, "unlimited", 100_000, "fixed"),
    ("hybrid", 8, 5, 5, 0.5, 1, "8", 200_000, "fixed"),
    ("hybrid", 9, 3, 6, 0.5, 2, "unlimited", 150_000, "fixed"),
    ("hybrid", 4, 1, 12, 0.5, 1, "4", 250_000, "fixed"),
    ("hybrid", 6, 3, 4, 0.5, 1, "unlimited", 80_000, "growing"),
    ("hybrid", 7, 2, 10, 0.5, 3, "8", 300_000, "fixed"),
    ("hybrid", 12, 6, 8, 0.4, 2, "unlimited", 200_000, "growing"),
]
RUNS = 6


def binary(name):
    return str(pathlib.Path(__file__).resolve().parent.parent / "target" / "release" / name)


def simulated(model, features, shared, actions, gap, epsilon, cap, people, batches):
    kind = "synthetic" if model == "shared" else "per-action"
    own = f", shared = {shared}" if shared else ""
    text = f"""
name = "prediction"
dimensions = [{features}]
horizons = [{people}]
central_epsilons = [{epsilon}]
local_epsilons = [{'"unlimited"' if cap == "unlimited" else cap}]
runs = {RUNS}
environment = {{ kind = "{kind}", arms = {actions}, gap = {gap}{own} }}
algorithms = ["{'sblb' if batches == 'fixed' else 'sblb-growing'}"]
"""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "experiment.toml")
        file.write_text(text)
        out = pathlib.Path(folder, "out")
        command = [binary("incrowd-lab"), "simulate", str(file), "--out", str(out)]
        subprocess.run(command, check=True, capture_output=True)
        rows = list(csv.DictReader(open(out / "table.csv")))
    regret = sum(float(row["regret"]) for row in rows)
    return regret / sum(float(row["regret_random"]) for row in rows)


def predicted(model, features, shared, actions, gap, epsilon, cap, people, batches):
    command = [binary("incrowd"), "plan", "--dimension", features, "--horizon", people,
               "--central-epsilon", epsilon, "--local-epsilon", cap, "--gap", gap,
               "--actions", actions, "--batches", batches, "--closes", "count",
               "--honest", 1, "--output", "json"]
    if model != "shared":
        command += ["--slots", actions]
    if model == "hybrid":
        command += ["--shared", shared]
    command = [str(word) for word in command]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return answer["predicted_regret"] / answer["random_regret"]


def main():
    print("| model | features | actions | gap | epsilon | cap | people | batches | simulated"
          " | predicted | ratio |")
    print("|" + "---|" * 11)
    ratios = []
    for setting in SETTINGS:
        model, features, shared, actions, gap, epsilon, cap, people, batches = setting
        found, told = simulated(*setting), predicted(*setting)
        ratios.append(told / found)
        name = f"{model}, {shared} shared" if shared else model
        print(f"| {name} | {features} | {actions} | {gap} | {epsilon} | {cap} | {people:,} |"
              f" {batches} | {found:.1%} | {told:.1%} | {told / found:.2f} |", flush=True)
    outside = sum(not 1 / 1.5 <= ratio <= 1.5 for ratio in ratios)
    print(f"{len(ratios)} settings, {outside} outside of a factor of 1.5", file=sys.stderr)


if __name__ == "__main__":
    main()
