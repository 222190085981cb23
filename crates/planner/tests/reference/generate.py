#!/usr/bin/env python3
"""Writes the numbers that the tests of the paper's formulas compare with: paper.json.

    python3 -m venv .venv && .venv/bin/pip install -r requirements.txt && .venv/bin/python generate.py

Independent of the Rust code: the formulas as the paper prints them, in mpmath with 80 digits. With --check it writes nothing and fails
when the file differs.
"""

import json
import pathlib
import sys

import mpmath as mp

mp.mp.dps = 80
HERE = pathlib.Path(__file__).resolve().parent


def number(x):
    return float(mp.nstr(x, 17))


def theorem_2(d, m, p, T, eps, delta0, L, S, ridge, eta, delta):
    d, m, p, T, eps, delta0, L, S, ridge, eta, delta = map(mp.mpf, (d, m, p, T, eps, delta0, L, S, ridge, eta, delta))
    first = 2 * mp.sqrt(3) * (S + m * d) * T ** mp.mpf("0.75") / mp.sqrt(1 - p) * mp.sqrt((1 + eta) * mp.log(1 + T / (d * ridge)))
    models = 1 + d ** mp.mpf("1.5") * mp.log(L**2 * T / d + 16 * mp.sqrt(T) * mp.log(2 * T / delta) / (1 - p)) ** mp.mpf("1.5") / mp.log(1 + eta)
    edge = 7 * eps / mp.sqrt(T) / (64 * mp.sqrt(2 * mp.log(2 * T / delta0)) * d * (d + 1))
    log8 = mp.log(8 * m * T / delta0)
    if p**2 * (1 - p) <= edge:
        return "flip", first + d * L * m / mp.sqrt(ridge) * models * 14 * log8 / p**2
    return "epsilon", first + 264 / mp.sqrt(ridge) * mp.sqrt(2) * d**3 * log8 ** mp.mpf("1.5") * L * m * models * mp.sqrt(T) * (1 - p) / eps


def paper():
    names = ["dimension", "bits", "flip", "horizon", "epsilon_central", "delta", "context_bound", "parameter_bound", "ridge",
             "growth", "failure_probability"]
    rows = []
    for case in [(5, 1, 0.9, 10**6, 1.0, 1e-6, 1.0, 1.0, 1000.0, 0.5, 0.05), (5, 2, 0.001, 10**4, 0.5, 1e-6, 2.0, 1.5, 100.0, 0.5, 0.05),
                 (3, 1, 0.99999, 10**4, 1.0, 1e-5, 1.0, 0.5, 10.0, 1.0, 0.1)]:
        name, value = theorem_2(*case)
        rows.append(dict(zip(names, case), case=name, regret=number(value)))
    flips = [{"dimension": d, "bits": m, "epsilon_local": e, "flip": number(2 / (mp.exp(2 * mp.mpf(e) / (m * d * (d + 3))) + 1))}
             for d, m, e in [(5, 1, 0.5), (20, 1, 0.5), (10, 4, 3.0), (2, 1, 1e-6)]]
    return {"theorem_2": rows, "flips": flips}


def main():
    text = json.dumps(paper(), indent=1) + "\n"
    path = HERE / "paper.json"
    if "--check" not in sys.argv:
        path.write_text(text, encoding="utf-8")
    elif path.read_text(encoding="utf-8") != text:
        sys.exit(f"{path} is not what this script computes")


main()
