#!/usr/bin/env python3
"""Exact privacy of released batches of any dimension, by convolved privacy losses, for comparison with certificates. Writes losses.json.

Given the other people's inputs the coordinates of a batch are independent, so the privacy loss of all releases is a sum of independent losses,
one for each coordinate and batch. Each is rounded DOWN to a grid and points of tiny mass are left out, so the hockey-stick divergence of the
sum, in both directions, is a lower bound on the exact one; inputs are chosen, not optimised. A certificate must not be below.

Written from docs/formats.md (Coordinates of a report, Coins), not from the Rust code. Kinds of cases:

  apart     a person is in k batches of one kind, h of every batch is honest (the rest is known and left out)
  stages    in k batches of several kinds: the worst of all ways to choose them
  together  with k reports in one batch
  present   a report in one world, a pad (the report of x = 0) in the other
  moved     a report in the first of two batches in one world, in the second in the other, pads in the other places
  fair      one case: the pad is made of fair coins instead, which no certificate covers

  python3 -m venv v && v/bin/pip install -r requirements-sandwich.txt && v/bin/python losses.py        (some minutes, deterministic)
"""
import itertools
import json
import math
import os
import sys
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
DOWN = 1 - 1e-9
FINE = 160  # grid points for one standard deviation of the whole loss
MOST = 20_000  # grid points in all
LG = np.cumsum(np.concatenate(([0.0], np.log(np.arange(1, 20001)))))  # ln n!


def values(u, r):
    return [r * a for a in u] + [u[i] * u[k] for i in range(len(u)) for k in range(i + 1)]


def tilts(v, m):
    return [min(1.0, max(-1.0, m * v + (m - 1 - 2 * q))) for q in range(m)]


def binomial(n, chance):
    k = np.arange(n + 1)
    return np.exp(LG[n] - LG[k] - LG[n - k] + k * math.log(chance) + (n - k) * math.log1p(-chance))


def law(counts, c):
    """Law of the sum of coins: tilt -> how many."""
    out = np.ones(1)
    for tilt, n in sorted(counts.items()):
        if n:
            out = np.convolve(out, binomial(n, 0.5 + c * tilt / 2))
    return out


def count(vs, m):
    """Tilts of one coordinate over some reports, with their multiplicity."""
    found = {}
    for v, n in vs:
        for tilt in tilts(v, m):
            found[tilt] = found.get(tilt, 0) + n
    return found


class Losses:
    """One coordinate of one batch in two worlds."""

    def __init__(self, p, q):
        keep = (p > 1e-40) & (q > 1e-40)  # leaving points out only lowers the divergence
        self.p, self.q = p[keep], q[keep]
        self.loss = np.log(self.p) - np.log(self.q)

    def variance(self):
        return float(max(np.sum(self.p * self.loss**2) - np.sum(self.p * self.loss) ** 2, 0.0))

    def on_grid(self, step, sign):
        loss, mass = (self.loss, self.p) if sign > 0 else (-self.loss, self.q)
        place = np.floor(loss / step).astype(int)
        first = int(place.min())
        return first, np.bincount(place - first, weights=mass)


def trimmed(first, masses):
    """Without the ends whose mass is nothing; a mass that is left out only lowers the divergence."""
    heavy = np.nonzero(masses > 1e-22)[0]
    return first + int(heavy[0]), masses[heavy[0]: heavy[-1] + 1]


def epsilon(parts, delta):
    """The largest epsilon found at which the divergence of all parts together is above delta."""
    spread = math.sqrt(sum(part.variance() for part in parts))
    if spread == 0.0:
        return 0.0
    # Rounding down costs half a step for each part, on average.
    step, best = spread / (FINE * max(1.0, len(parts) / 8)), 0.0
    step = max(step, sum(float(np.ptp(part.loss)) for part in parts) / MOST)
    for sign in (1, -1):
        first, masses = 0, np.ones(1)
        for part in sorted(parts, key=lambda part: len(part.p)):
            start, more = part.on_grid(step, sign)
            first, masses = trimmed(first + start, np.convolve(masses, more))
        losses = step * (first + np.arange(len(masses)))

        def divergence(at):
            above = losses > at
            return float(np.sum(masses[above] * -np.expm1(at - losses[above])))

        low, high = 0.0, max(float(losses[-1]), 0.0)
        if divergence(low) <= delta:
            continue
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if divergence(middle) > delta else (low, middle)
        best = max(best, low)
    return best * DOWN


# ---------------------------------------------------------------- inputs

def people(d, rng):
    """A few inputs (u, r) for everybody else, and pairs of inputs of one person that are far apart."""
    e = np.zeros(d)
    e[0] = 1.0
    flat = np.ones(d) / math.sqrt(d)
    u = rng.standard_normal(d)
    u /= np.linalg.norm(u)
    w = rng.standard_normal(d)
    w -= (w @ u) * u
    norm = np.linalg.norm(w)
    turned = -u if d == 1 else -0.5 * u + math.sqrt(0.75) * w / norm
    other = -e if d == 1 else np.concatenate(([-0.5, math.sqrt(0.75)], np.zeros(d - 2)))
    pairs = [((e, 1.0), (other, 1.0)), ((u, 1.0), (turned, 1.0)), ((e, 1.0), (-e, 1.0)), ((flat, 1.0), (-flat, 1.0))]
    return [(e, 1.0), (-flat, 1.0), (u, 0.0), (np.zeros(d), 0.0), (turned, 0.6)], pairs


def others(kind, d, m, n, inputs, rng):
    """For each coordinate: tilt -> how many coins of the others."""
    coordinates = d * (d + 3) // 2
    if kind == "same":
        chosen = [(inputs[rng.integers(len(inputs))], n)]
    elif kind == "half":
        chosen = [(inputs[0], n // 2), (inputs[1], n - n // 2)]
    else:  # corners: any split of the coins, which certificates allow for
        splits = [int(n * m * share) for share in rng.choice([0.0, 0.02, 0.1, 0.5, 0.9, 1.0], coordinates)]
        return [{1.0: a, -1.0: n * m - a} for a in splits]
    return [count([(values(*x)[j], times) for x, times in chosen], m) for j in range(coordinates)]


def plus(a, b):
    return {tilt: a.get(tilt, 0) + b.get(tilt, 0) for tilt in {*a, *b}}


def batch(crowd, one, two, m, c):
    """Losses of one batch: `one` and `two` are the person's values in the two worlds, a list of reports each."""
    parts = []
    for j, rest in enumerate(crowd):
        a, b = (count([(v[j], 1) for v in world], m) for world in (one, two))
        if a != b:
            parts.append(Losses(law(plus(rest, a), c), law(plus(rest, b), c)))
    return parts


# ---------------------------------------------------------------- cases

BITS = (1, 2, 3, 4, 8, 9, 16, 33, 64, 100)
KEEPS = (0.003, 0.05, 0.1, 0.3, 0.5, 0.8, 0.95, 0.995)
DELTAS = (0.1, 1e-2, 1e-4, 1e-6, 1e-9)


def stage(rng, largest=5000):
    m = int(rng.choice(BITS))
    size = int(math.exp(rng.uniform(math.log(2), math.log(min(600, largest // m)))))
    # Bits and batches make a report weigh more; keep it in a range where epsilon says something.
    keeps = [c for c in KEEPS if c * math.sqrt(m / size) < 1.5]
    return size, m, float(rng.choice(keeps))


def case(kind, index):
    rng = np.random.default_rng([index, sum(map(ord, kind))])
    d, delta = int(rng.integers(1, 5)), float(rng.choice(DELTAS))
    k = int(rng.integers(1, 4)) if kind == "apart" else int(rng.integers(2, 4)) if kind in ("stages", "together") else 1
    honest = float(rng.choice([1.0, 1.0, 0.9, 0.5, 0.29]))
    stages = [stage(rng) for _ in range(int(rng.integers(2, 4)) if kind == "stages" else 1)]
    if kind == "together":
        stages = [(max(size, 2 * k + 1), m, c) for size, m, c in stages]
        honest = 1.0
    inputs, pairs = people(d, rng)
    zero = values(np.zeros(d), 0.0)

    def parts(chosen, one, two, which):
        size, m, c = chosen
        n = max(math.floor(honest * size) - len(one), 0)
        crowd = others(which, d, m, n, inputs, np.random.default_rng([index, 7]))
        return batch(crowd, one, two, m, c)

    best = 0.0
    for (x, y), which in itertools.product(pairs[:3] if kind != "stages" else pairs[:2], ("same", "half", "corners")):
        a, b = values(*x), values(*y)
        if kind == "apart":
            found = epsilon(parts(stages[0], [a], [b], which) * k, delta)
        elif kind == "together":
            found = epsilon(parts(stages[0], [a] * k, [b] * k, which), delta)
        elif kind == "present":
            found = epsilon(parts(stages[0], [a], [zero], which), delta)
        elif kind == "moved":
            found = epsilon(parts(stages[0], [a], [zero], which) + parts(stages[0], [zero], [b], which), delta)
        else:
            each = [parts(one, [a], [b], which) for one in stages]
            ways = itertools.combinations_with_replacement(each, k)
            found = max(epsilon([part for one in way for part in one], delta) for way in ways)
        best = max(best, found)
    return {"kind": kind, "dimension": d, "stages": stages, "participations": k, "honest": honest, "delta": delta, "epsilon_exact": best}


def fair():
    """d = 60, m = 2, c = 0.8, batches of 30: everybody at x = 0, and a pad of fair coins instead of one report of x = 0."""
    d, m, c, size, delta = 60, 2, 0.8, 30, 1e-3
    crowd = {1.0: size - 1, -1.0: size - 1}
    part = Losses(law(plus(crowd, {1.0: 1, -1.0: 1}), c), law(plus(crowd, {0.0: 2}), c))
    best = 0.0
    for sign in (1, -1):
        # 1,890 equal coordinates: a power of the Fourier transform, off by far less than delta.
        step, length = 2e-5, 1 << 22
        first, masses = part.on_grid(step, sign)
        times = d * (d + 3) // 2
        total = np.fft.irfft(np.fft.rfft(masses, length) ** times, length)
        losses = step * (times * first + np.arange(length))
        # The transform is periodic: keep the period around the mean.
        mean = step * float(np.sum(masses * (first + np.arange(len(masses))))) * times
        losses += step * length * np.round((mean - losses) / (step * length))

        def divergence(at):
            above = losses > at
            return float(np.sum(np.maximum(total[above], 0.0) * -np.expm1(at - losses[above]))) - 1e-9

        low, high = 0.0, 60.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if divergence(middle) > delta else (low, middle)
        best = max(best, low)
    return {"kind": "fair", "dimension": d, "stages": [(size, m, c)], "participations": 1, "honest": 1.0, "delta": delta, "epsilon_exact": best * DOWN}


def main():
    began, rows = time.time(), [fair()]
    print(rows[0], file=sys.stderr)
    for kind, number in (("apart", 300), ("stages", 50), ("together", 60), ("present", 50), ("moved", 80)):
        for index in range(number):
            rows.append(case(kind, index))
            if index % 50 == 49:
                print(f"{kind} {index}: {time.time() - began:.0f} s", file=sys.stderr)
        print(f"{kind}: {time.time() - began:.0f} s", file=sys.stderr)
    with open(os.path.join(HERE, "losses.json"), "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
