#!/usr/bin/env python3
"""Writes numeric.json: the special functions and binomial laws of incrowd_privacy::numeric, from their definitions, in mpmath with 60 digits.

    python3 -m venv .venv && .venv/bin/pip install -r requirements-numeric.txt && .venv/bin/python numeric.py

Independent of the Rust code. Arguments are floats, taken exactly; values are printed with 25 digits as text, so that nothing is rounded twice. With
--check it writes nothing and fails when the file differs.
"""

import json
import pathlib
import sys

import mpmath as mp

mp.mp.dps = 60
HERE = pathlib.Path(__file__).resolve().parent


def text(x):
    return mp.nstr(x, 25, min_fixed=0, max_fixed=0)


def table(names, cases, function):
    return [dict(zip(names, case), value=text(function(*(mp.mpf(x) for x in case)))) for case in cases]


def ln_choose(n, k):
    return mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1)


def deviance(x, mean):
    return x * mp.log(x / mean) + mean - x


def stirling_error(x):
    return mp.loggamma(x + 1) - mp.log(mp.sqrt(2 * mp.pi * x)) - x * (mp.log(x) - 1)


def normal_tail(x):
    return mp.erfc(x / mp.sqrt(2)) / 2


def mills(x):
    return normal_tail(x) / (mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi))


def power_excess(z, b):
    return (1 + z) ** b - 1 - b * z


def exp_excess(z):
    return mp.expm1(z) - z


def point(n, p, k):
    return mp.exp(ln_choose(n, k) + k * mp.log(p) + (n - k) * mp.log1p(-p))


def geometric_sum(term, ratio):
    """The sum of a term and its successors, whose ratios fall, to a share of 1e-40."""
    total = mp.mpf(0)
    while term > total * mp.mpf(10) ** -40:
        total += term
        term *= next(ratio)
    return total


def at_most(n, p, k):
    def ratios():
        j = k
        while True:
            yield j * (1 - p) / ((n - j + 1) * p)
            j -= 1
    return geometric_sum(point(n, p, k), ratios())


def ln_at_least(n, p, k):
    def ratios():
        j = k
        while True:
            yield (n - j) * p / ((j + 1) * (1 - p))
            j += 1
    return mp.log(geometric_sum(point(n, p, k), ratios()))


CHOOSE = [(5, 2), (10, 0), (100, 50), (1000, 3), (10**6, 500000), (10**9, 1000), (10**9, 5 * 10**8)]
DEVIANCE = [(5.0, 5.0), (5.0, 5.001), (100.0, 90.0), (100.0, 10.0), (1e6, 1000500.0), (1e9, 999999990.0), (3.0, 1e5), (1e10, 1e10 + 1)]
STIRLING = [1.0, 2.0, 7.0, 15.0, 16.0, 17.0, 100.0, 1e4, 1e8]
NORMAL = [-8.0, -1.0, -0.25, 0.0, 0.5, 1.0, 2.0, 3.0]
MILLS = [0.0, 0.25, 0.5, 1.0, 2.0, 2.9999, 3.0, 3.5, 5.0, 7.25, 12.0, 35.0, 100.0, 1e4]
POWER = [(z, b) for b in (2.0, 1.05, -0.05, 3.0, 20.0, -19.0, 1000.0, -999.0)
         for z in (1e-8, -1e-8, 1e-5, -1e-5, 9e-4, -9e-4, 0.01, -0.01, 0.2, -0.2)]
EXP = [sign * z for z in (1e-8, 1e-5, 1e-3, 0.0099, 0.0101, 0.1, 1.0, 20.0) for sign in (1, -1)]
POINTS = [(10, 0.5, 0), (10, 0.5, 10), (10, 0.3, 3), (1000, 0.25, 250), (1000, 0.25, 100), (10**6, 0.001, 0), (10**6, 0.001, 1000), (10**6, 0.3, 297000),
          (10**9, 0.25, 25 * 10**7), (10**10, 0.018, 18 * 10**7 + 10**4), (50, 1e-9, 3), (15, 0.4, 14), (40, 0.4, 17)]
AT_MOST = [(1000, 0.5, 380), (1000, 0.1, 40), (10**5, 0.018, 1400), (10**6, 0.3, 297000), (10**6, 0.9, 896000), (50, 0.25, 0), (10, 0.5, 8), (10**6, 0.001, 700)]
AT_LEAST = [(10, 0.05, 5), (1000, 0.1, 150), (1000, 0.1, 100), (10**6, 0.3, 303000), (10**9, 1e-6, 1300), (10**9, 0.25, 250100000), (20000, 0.05, 1234)]


def main():
    binomial = ["trials", "chance", "count"]
    found = {
        "ln_choose": table(["n", "k"], CHOOSE, ln_choose),
        "deviance": table(["x", "mean"], DEVIANCE, deviance),
        "stirling_error": table(["x"], [(x,) for x in STIRLING], stirling_error),
        "normal_tail": table(["x"], [(x,) for x in NORMAL], normal_tail),
        "mills": table(["x"], [(x,) for x in MILLS], mills),
        "power_excess": table(["z", "power"], POWER, power_excess),
        "exp_excess": table(["z"], [(z,) for z in EXP], exp_excess),
        "point": table(binomial, POINTS, point),
        "at_most": table(binomial, AT_MOST, at_most),
        "ln_at_least": table(binomial, AT_LEAST, ln_at_least),
    }
    lines = ",\n".join(f' "{name}": [\n  ' + ",\n  ".join(json.dumps(row) for row in rows) + "\n ]" for name, rows in found.items())
    written = "{\n" + lines + "\n}\n"
    path = HERE / "numeric.json"
    if "--check" not in sys.argv:
        path.write_text(written, encoding="utf-8")
    elif path.read_text(encoding="utf-8") != written:
        sys.exit(f"{path} is not what this script computes")


main()
