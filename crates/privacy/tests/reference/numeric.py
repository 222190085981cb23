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


def normal_quantile(tail):
    """The x with P(Z > x) = tail, by bisection."""
    low, high = mp.mpf(0), mp.mpf(40)
    for _ in range(180):
        middle = (low + high) / 2
        low, high = (middle, high) if normal_tail(middle) > tail else (low, middle)
    return low


def coins(ups, downs, keep, count):
    """P(Bin(ups, (1+c)/2) + Bin(downs, (1-c)/2) = count), term by term."""
    ups, downs, count = int(ups), int(downs), int(count)
    up = (1 + keep) / 2
    terms = (point(mp.mpf(ups), up, mp.mpf(i)) * point(mp.mpf(downs), 1 - up, mp.mpf(count - i))
             for i in range(max(0, count - downs), min(ups, count) + 1))
    return mp.fsum(terms)


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


def among_best(words, chosen, y):
    """The chance that at most chosen - 1 of words - 1 normal variables are above y, term by term."""
    n, above = int(words) - 1, normal_tail(y)
    return mp.fsum(mp.binomial(n, j) * above**j * (1 - above) ** (n - j) for j in range(int(chosen)))


BEST = [(words, chosen, y) for words, chosen in [(2, 1), (8, 2), (256, 1), (256, 17), (256, 128)] for y in (-3.0, -0.5, 0.0, 0.75, 1.5, 2.5, 6.0)]
CHOOSE = [(5, 2), (10, 0), (100, 50), (1000, 3), (10**6, 500000), (10**9, 1000), (10**9, 5 * 10**8)]
DEVIANCE = [(5.0, 5.0), (5.0, 5.001), (100.0, 90.0), (100.0, 10.0), (1e6, 1000500.0), (1e9, 999999990.0), (3.0, 1e5), (1e10, 1e10 + 1)]
STIRLING = [1.0, 2.0, 7.0, 15.0, 16.0, 17.0, 100.0, 1e4, 1e8]
NORMAL = [-8.0, -1.0, -0.25, 0.0, 0.5, 1.0, 2.0, 3.0]
MILLS = [0.0, 0.25, 0.5, 1.0, 2.0, 2.9999, 3.0, 3.5, 5.0, 7.25, 12.0, 35.0, 100.0, 1e4]
QUANTILES = [0.5, 0.4999, 0.4, 0.1, 1e-3, 1e-8, 1e-20, 1e-100, 1e-250]
# Number of coins of both kinds, c, and a count near the mean, in the tail and at an end.
COINS = [(a, b, c, k) for a, b, c, ks in [
    (0, 30, 0.5, (0, 7, 30)), (3, 20, 0.3, (0, 8, 23)), (40, 40, 0.05, (10, 40, 70)), (10, 200, 0.9, (10, 20, 45)), (700, 900, 0.2, (600, 780, 1000)),
    (1000, 1000, 0.001, (800, 1000, 1250)), (300, 3000, 0.999, (290, 301, 320))] for k in ks]
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
        "normal_quantile": table(["tail"], [(x,) for x in QUANTILES], normal_quantile),
        "coins": table(["ups", "downs", "keep", "count"], COINS, coins),
        "mills": table(["x"], [(x,) for x in MILLS], mills),
        "power_excess": table(["z", "power"], POWER, power_excess),
        "exp_excess": table(["z"], [(z,) for z in EXP], exp_excess),
        "among_best": table(["words", "chosen", "y"], BEST, among_best),
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
