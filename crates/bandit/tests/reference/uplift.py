#!/usr/bin/env python3
"""Writes what the sums of comparison tasks say about two mean rewards and their difference (uplift.json).

    python3 -m venv .venv && .venv/bin/pip install -r vectors/requirements.txt && .venv/bin/python crates/bandit/tests/reference/uplift.py

Independent of the Rust code: the formulas of docs/confidence.md, Comparisons, with 25 digits. Limits are found by halving an interval in which the
inequality changes from true to false, not by solving for them, and the moments of words are integrals over the binomial law of how many words are
better. With --check it writes nothing and fails when the file differs.
"""

import json
import pathlib
import sys
from fractions import Fraction

import mpmath as mp

mp.mp.dps = 25
HERE = pathlib.Path(__file__).resolve().parent
STEPS = 16


def real(fraction):
    return mp.mpf(fraction.numerator) / fraction.denominator


class Bits:
    def __init__(self, bits, flip):
        self.bits, self.flip = bits, Fraction(flip)
        self.keep = real(1 - self.flip)

    def document(self):
        return {"encoding": "bits", "bits": self.bits, "flip": f"{self.flip.numerator}/{self.flip.denominator}"}

    def debiased(self, total, size, _moment):
        return (mp.mpf(2) * total / self.bits - size) / self.keep

    def variance(self, _moment):
        """All but one of the coins show a sure sign with probability (1 + c)/2."""
        sure = (1 - self.keep**2) * (self.bits - 1)
        return (sure + 1) / (self.bits * self.keep) ** 2

    def bias(self, _moment):
        return mp.mpf(2) ** -30 / self.keep


class Words:
    def __init__(self, words, chosen, outside, moment_weight):
        self.words, self.chosen, self.outside, self.moment_weight = words, chosen, Fraction(outside), moment_weight
        among = lambda y: mp.fsum(
            mp.binomial(words - 1, j) * mp.ncdf(-y) ** j * mp.ncdf(y) ** (words - 1 - j) for j in range(chosen))
        grid = [-10, -4, -2, -1, 0, 1, 2, 3, 4, 6, 10]
        best = lambda power: mp.mpf(words) / chosen * mp.quad(lambda y: y**power * among(y) * mp.npdf(y), grid)
        mean, square = best(1), best(2)
        n, k, out = mp.mpf(words), mp.mpf(chosen), real(self.outside)
        # Words that are not chosen: all words together have mean 0 and mean square 1.
        self.gain = (1 - out) * mean + out * (-k * mean) / (n - k)
        second = (1 - out) * square + out * (n - k * square) / (n - k)
        self.along = second - self.gain**2

    def document(self):
        outside = f"{self.outside.numerator}/{self.outside.denominator}"
        return {"encoding": "codebook", "words": self.words, "chosen": self.chosen, "outside": outside,
                "moment_weight": self.moment_weight}

    def share(self, moment):
        weight = mp.mpf(self.moment_weight) / 256
        return weight if moment else 1 - weight

    def debiased(self, total, _size, moment):
        return mp.mpf(total) / (STEPS * self.gain * mp.sqrt(self.share(moment)))

    def variance(self, moment):
        return (max(1, self.along) + mp.mpf(1) / STEPS**2 / 12) / (self.gain**2 * self.share(moment))

    def bias(self, moment):
        # A report has 4 coordinates.
        return mp.sqrt(5) * mp.mpf(2) ** -20 / (self.gain * mp.sqrt(self.share(moment)))


def last(true_at, false_at, holds):
    """Where the inequality stops to hold."""
    for _ in range(120):
        middle = (true_at + false_at) / 2
        true_at, false_at = (middle, false_at) if holds(middle) else (true_at, middle)
    return true_at


def mean_reward(rewards, reports, noise, z):
    a, b, bias, capacity, k = noise
    error = z * mp.sqrt(b) + bias
    unknown = {"reports": reports, "mean": None, "lower": mp.mpf(0), "upper": mp.mpf(1)}
    if reports <= error:
        return unknown
    people = k * min(reports + error, capacity)
    s = lambda mu: mp.sqrt(a + mu * mu * b + people * mu * (1 - mu))
    below = lambda mu: rewards - mu * reports <= z * s(mu) + bias
    above = lambda mu: mu * reports - rewards <= z * s(mu) + bias
    inside = [mu for mu in (mp.mpf(i) / 4096 for i in range(4097)) if below(mu) and above(mu)]
    if not inside:
        return unknown
    lower = mp.mpf(0) if below(mp.mpf(0)) else last(inside[0], mp.mpf(0), below)
    upper = mp.mpf(1) if above(mp.mpf(1)) else last(inside[-1], mp.mpf(1), above)
    return {"reports": reports, "mean": min(max(rewards / reports, lower), upper), "lower": lower, "upper": upper}


def difference(incumbent, model):
    if incumbent["mean"] is None or model["mean"] is None:
        return None, model["lower"] - incumbent["upper"], model["upper"] - incumbent["lower"]
    d = model["mean"] - incumbent["mean"]
    down = mp.hypot(model["mean"] - model["lower"], incumbent["upper"] - incumbent["mean"])
    up = mp.hypot(model["upper"] - model["mean"], incumbent["mean"] - incumbent["lower"])
    return d, d - down, d + up


def written(value):
    return None if value is None else float(value)


def case(name, stages, sums, confidence, bound=1.0, participations=1):
    """`stages` are (rounds, size, law); `sums` the sums of each round: reward and number, incumbent first."""
    laws = [(size, law) for rounds, size, law in stages for _ in range(rounds)][: len(sums)]
    z = mp.sqrt(2) * mp.erfinv(mp.mpf(confidence))
    groups = []
    for slot in range(2):
        total = lambda moment: mp.fsum(
            law.debiased(row[2 * slot + (0 if moment else 1)], size, moment) for row, (size, law) in zip(sums, laws))
        over = lambda part: mp.fsum(size * part(law) for size, law in laws)
        noise = (over(lambda law: law.variance(True)), over(lambda law: law.variance(False)),
                 over(lambda law: law.bias(True) + law.bias(False)), over(lambda law: 1), participations)
        groups.append(mean_reward(total(True), total(False), noise, z))
    d, lower, upper = difference(*groups)
    mechanism = {
        "dimension": 1, "context_bound": bound, "layout": "per-action", "slots": 2, "closes": "count", "grace": 0,
        "central_delta": 1e-6, "participations": participations, "honest_fraction": 1.0,
        "schedule": [{"rounds": rounds, "size": size, **law.document()} for rounds, size, law in stages],
    }
    group = lambda found: {key: written(value) for key, value in found.items()}
    return {
        "name": name, "mechanism": mechanism, "sums": sums, "confidence": confidence,
        "incumbent": group(groups[0]), "model": group(groups[1]),
        "difference": written(d), "lower": written(lower), "upper": written(upper),
    }


def cases():
    plain, coarse = Bits(1, "1/2"), Bits(5, "3/4")
    words, few = Words(64, 3, "1/4", 150), Words(16, 4, "1/10", 176)
    one = [(2, 20000, plain)]
    return [
        case("bits", one, [[10500, 12600, 11400, 12500], [10400, 12500, 11500, 12450]], 0.95),
        case("another confidence", one, [[10500, 12600, 11400, 12500], [10400, 12500, 11500, 12450]], 0.5),
        case("one release of two", one, [[10500, 12600, 11400, 12500]], 0.99),
        case("another unit", one, [[10500, 12600, 11400, 12500], [10400, 12500, 11500, 12450]], 0.95, bound=3.5),
        case("three reports of a person", one, [[10500, 12600, 11400, 12500], [10400, 12500, 11500, 12450]], 0.95,
             participations=3),
        case("more bits", [(1, 50000, coarse)], [[126800, 131200, 128700, 131300]], 0.95),
        case("a group that nobody is in", [(1, 1000, plain)], [[490, 505, 560, 740]], 0.95),
        case("rewards near one", one, [[12400, 12500, 12470, 12520], [12500, 12400, 12480, 12500]], 0.95),
        case("no mean explains the sums", one, [[16500, 12500, 11400, 12500], [16500, 12500, 11400, 12500]], 0.95),
        case("words", [(1, 4000, words)], [[9000, 24500, 15200, 25600]], 0.95),
        case("most words for the reward", [(1, 4000, few)], [[17000, 19800, 18600, 20400]], 0.9),
        case("a change of the law", [(1, 20000, plain), (1, 4000, words)],
             [[10500, 12600, 11400, 12500], [9000, 24500, 15200, 25600]], 0.95, bound=0.25),
    ]


def main():
    rows = ",\n ".join(json.dumps(row) for row in cases())
    text = "[\n " + rows + "\n]\n"
    path = HERE / "uplift.json"
    if "--check" not in sys.argv:
        path.write_text(text, encoding="utf-8")
    elif path.read_text(encoding="utf-8") != text:
        sys.exit(f"{path} is not what this script computes")


main()
