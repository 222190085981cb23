#!/usr/bin/env python3
"""Exact privacy of small batches and the best attacks on one report, for comparison with certificates.

Written from docs/formats.md (Coordinates of a report, Coins), not from the Rust code. Writes, beside this file,

  sandwich.json  for one released batch: the largest epsilon found over inputs of the other people and pairs of inputs of one person
                 (or of k = 2 reports of one person in one batch) at which the hockey-stick divergence, in one of its two directions,
                 is still above delta. Inputs are searched, the divergence of each is enumerated: a certificate must not be below.
  local.json     for one report: the largest log ratio of its law found over pairs of inputs.

Laws are the ideal ones (thresholds not rounded to 32 bits). Everything is done in doubles with sums of positive terms, and every value is
lowered by 1e-9 relatively, far above the error; a few values are checked against mpmath at 60 digits.

  python3 -m venv v && v/bin/pip install -r requirements-sandwich.txt && v/bin/python sandwich.py        (a few minutes, deterministic)
"""
import itertools
import json
import math
import os
import sys
import time

import mpmath
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
DOWN = 1 - 1e-9
KEEPS = (0.1, 0.3, 0.5, 0.8)
DELTAS = (1e-2, 1e-4, 1e-6)


# ---------------------------------------------------------------- one report

def values(point):
    """(r u, lower triangle of u u') of a point (u_1, ..., u_d, r)."""
    u, r = point[:-1], point[-1]
    return [r * a for a in u] + [u[i] * u[k] for i in range(len(u)) for k in range(i + 1)]


def tilts(v, m):
    return [min(1.0, max(-1.0, m * v + (m - 1 - 2 * q))) for q in range(m)]


def count_law(v, m, c):
    """Law of the number of ones of one coordinate."""
    law = np.ones(1)
    for tau in tilts(v, m):
        chance = 0.5 + c * tau / 2
        law = np.convolve(law, [1 - chance, chance])
    return law


def binomial(n, chance):
    k = np.arange(n + 1)
    lg = np.array([math.lgamma(i + 1) for i in range(n + 1)])
    return np.exp(lg[n] - lg - lg[::-1] + k * math.log(chance) + (n - k) * math.log1p(-chance))


def repeated(v, m, c, n):
    """Law of the sum of n reports' counts of a coordinate that is v in all of them."""
    law = np.ones(1)
    for tau, times in sorted((t, tilts(v, m).count(t)) for t in set(tilts(v, m))):
        if n:
            law = np.convolve(law, binomial(n * times, 0.5 + c * tau / 2))
    return law


# ---------------------------------------------------------------- the other people

def other_inputs(d, n, seed):
    """name -> list of (point, how many)."""
    def same(u, r):
        return [((*u, r), n)]

    def half(a, b):
        return [(a, n // 2), (b, n - n // 2)]

    rng = np.random.default_rng(seed)
    if d == 1:
        inputs = {
            "all u=1 r=1": same((1.0,), 1.0), "all u=-1 r=1": same((-1.0,), 1.0), "all u=1 r=0": same((1.0,), 0.0),
            "all u=0": same((0.0,), 0.0), "half u=1, half u=-1, r=1": half((1.0, 1.0), (-1.0, 1.0)),
            "half u=1 r=1, half u=0": half((1.0, 1.0), (0.0, 0.0)), "all u=0.7 r=1": same((0.7,), 1.0),
        }
    else:
        s = math.sqrt(0.5)
        inputs = {
            "all u=e1 r=1": same((1.0, 0.0), 1.0), "all u=-e1 r=1": same((-1.0, 0.0), 1.0), "all u=e1 r=0": same((1.0, 0.0), 0.0),
            "all u=(e1+e2)/sqrt2 r=1": same((s, s), 1.0), "all u=-(e1+e2)/sqrt2 r=1": same((-s, -s), 1.0),
            "all u=(e1-e2)/sqrt2 r=1": same((s, -s), 1.0), "all u=0": same((0.0, 0.0), 0.0),
            "half u=e1, half u=-e1, r=1": half((1.0, 0.0, 1.0), (-1.0, 0.0, 1.0)),
            "half u=(e1+e2)/sqrt2, half u=0, r=1": half((s, s, 1.0), (0.0, 0.0, 0.0)),
        }
    drawn = []
    for _ in range(n):
        u = rng.standard_normal(d)
        u *= rng.random() ** (1 / d) / np.linalg.norm(u)
        drawn.append(((*u.tolist(), float(rng.random())), 1))
    inputs[f"random, seed {seed}"] = drawn
    return inputs


def others_laws(inputs, m, c, coordinates):
    laws = [np.ones(1)] * coordinates
    for point, times in inputs:
        if times:
            for j, v in enumerate(values(point)):
                part = count_law(v, m, c) if times == 1 else repeated(v, m, c, times)
                laws[j] = np.convolve(laws[j], part)
    return laws


# ---------------------------------------------------------------- hockey-stick divergence of product laws

class Pair:
    """Two product laws; coordinates are split into two blocks, the second sorted by loss, so that the sum is exact and fast."""

    def __init__(self, p, q):
        split = (len(p) + 1) // 2
        self.blocks = [self.block(p[:split], q[:split]), self.block(p[split:], q[split:])]
        self.sorted = {}

    @staticmethod
    def block(p, q):
        a, b = np.ones(1), np.ones(1)
        for x, y in zip(p, q):
            a, b = np.outer(a, x).ravel(), np.outer(b, y).ravel()
        keep = (a > 1e-290) & (b > 1e-290)  # leaving points out only lowers the divergence
        a, b = a[keep], b[keep]
        return a, b, np.log(a / b)

    def prepare(self, sign):
        """Both directions use the same blocks: for sign -1 the laws change places."""
        if sign not in self.sorted:
            a, b, loss = self.blocks[1]
            p, q, loss = (a, b, loss) if sign > 0 else (b, a, -loss)
            order = np.argsort(-loss, kind="stable")
            sums_p = np.concatenate(([0.0], np.cumsum(p[order])))
            sums_q = np.concatenate(([0.0], np.cumsum(q[order])))
            a, b, first = self.blocks[0]
            p, q, first = (a, b, first) if sign > 0 else (b, a, -first)
            self.sorted[sign] = (p, q, first, -loss[order], sums_p, sums_q)
        return self.sorted[sign]

    def divergence(self, epsilon, sign):
        p, q, first, minus_loss, sums_p, sums_q = self.prepare(sign)
        count = np.searchsorted(minus_loss, first - epsilon, side="left")  # losses above epsilon - first
        return float(np.sum(np.maximum(p * sums_p[count] - math.exp(epsilon) * q * sums_q[count], 0.0)))

    def largest_loss(self, sign):
        _, _, first, minus_loss, _, _ = self.prepare(sign)
        return float(np.max(first) - minus_loss[0])

    def epsilon(self, delta, sign, low=0.0):
        """Smallest epsilon with divergence <= delta, from below; given that it is above `low`."""
        high = max(low, self.largest_loss(sign))
        while high - low > 1e-10 * max(high, 1e-3):
            middle = (low + high) / 2
            if self.divergence(middle, sign) > delta:
                low = middle
            else:
                high = middle
        return low


# ---------------------------------------------------------------- the search

def clip(point):
    u, r = point[:-1], min(1.0, max(0.0, point[-1]))
    norm = math.sqrt(sum(a * a for a in u))
    scale = 1.0 if norm <= 1 else 1 / norm
    return (*(a * scale for a in u), r)


def victims(d):
    """Pairs of points to start from; refined afterwards."""
    if d == 1:
        ends = [(1.0, 1.0), (-1.0, 1.0), (1.0, 0.0), (0.5, 1.0), (0.0, 0.0)]
        grid = [(u, r) for u in (-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0) for r in (0.0, 1.0)] + [(-0.5, 0.5), (0.5, 0.5)]
        return [(a, b) for a in ends for b in grid if a != b]
    angles = [math.pi / 6 * i for i in range(12)] + [math.pi / 4 + math.pi / 2 * i for i in range(4)]
    circle = [(math.cos(t), math.sin(t), 1.0) for t in angles]
    starts = [circle[0], circle[6], circle[12], circle[14], circle[15], circle[1], circle[5]]
    extra = [(0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (-0.5, 0.0, 1.0), (-0.35, -0.35, 1.0)]
    return [(a, b) for a in starts for b in circle + extra if a != b]


class Search:
    def __init__(self, d, m, c, size, reports=1):
        self.d, self.m, self.c, self.size, self.reports = d, m, c, size, reports
        self.coordinates = d * (d + 3) // 2
        self.best = {delta: (-1.0, None) for delta in DELTAS}
        self.laws = {}

    def person(self, points):
        """Laws of the sum of the person's reports, coordinate by coordinate."""
        if points not in self.laws:
            laws = [np.ones(1)] * self.coordinates
            for point in points:
                laws = [np.convolve(a, count_law(v, self.m, self.c)) for a, v in zip(laws, values(point))]
            self.laws[points] = laws
        return self.laws[points]

    def attempt(self, others, name, one, two, deltas=DELTAS):
        p = [np.convolve(s, a) for s, a in zip(others, self.person(one))]
        q = [np.convolve(s, a) for s, a in zip(others, self.person(two))]
        pair, better = Pair(p, q), False
        for delta in deltas:
            for sign in (1, -1):
                low = max(self.best[delta][0], 0.0)
                if pair.divergence(low, sign) > delta:
                    epsilon = pair.epsilon(delta, sign, low)
                    if epsilon > self.best[delta][0] * (1 + 1e-12):
                        direction = (one, two) if sign > 0 else (two, one)
                        self.best[delta], better = (epsilon, (name, direction)), True
        return better

    def run(self):
        n = self.size - self.reports
        inputs = other_inputs(self.d, n, 1000 * self.size + self.m)
        laws = {name: others_laws(i, self.m, self.c, self.coordinates) for name, i in inputs.items()}
        pairs = [((a,) * self.reports, (b,) * self.reports) for a, b in victims(self.d)]
        if self.reports == 2:  # the two reports need not be equal
            pairs += [((a, b), (x, y)) for (a, x), (b, y) in itertools.combinations(victims(1)[::4], 2)]
        for name, others in laws.items():
            for one, two in pairs:
                self.attempt(others, name, one, two)
        starts = {self.best[delta][1] for delta in DELTAS if self.best[delta][1]}
        for name, (one, two) in sorted(starts):
            self.refine(laws[name], name, one, two)
        for delta in DELTAS:
            epsilon, where = self.best[delta]
            others, victim = where if where else ("any", None)
            yield {
                "dimension": self.d, "bits": self.m, "keep": self.c, "batch_size": self.size, "participations": 1,
                "reports_in_batch": self.reports, "delta": delta, "others": others, "victim_u_then_r": victim,
                "epsilon_exact": max(epsilon, 0.0) * DOWN,
            }

    def refine(self, others, name, one, two):
        """Coordinate ascent over the person's two inputs."""
        width = self.d + 1
        flat = [x for point in one + two for x in point]
        step = 0.12
        while step > 0.004:
            moved = False
            for i, sign in itertools.product(range(len(flat)), (1, -1)):
                trial = list(flat)
                trial[i] += sign * step
                points = tuple(clip(tuple(trial[j:j + width])) for j in range(0, len(trial), width))
                half = len(one)
                if self.attempt(others, name, points[:half], points[half:]):
                    flat, moved = [x for point in points for x in point], True
            if not moved:
                step /= 2.5


def check_with_mpmath(rows):
    """The maximisers again at 60 digits, all sums term by term: the divergence at epsilon_exact must exceed delta."""
    mpmath.mp.dps = 60
    for row in rows:
        d, m, c, n = row["dimension"], row["bits"], mpmath.mpf(row["keep"]), row["batch_size"] - 1
        inputs = other_inputs(d, n, 1000 * row["batch_size"] + m)[row["others"]]

        def laws(victim):
            out = []
            for j in range(d * (d + 3) // 2):
                law = [mpmath.mpf(1)]
                for point, times in [*inputs, (victim[0], 1)]:
                    for tau in tilts(values(point)[j], m) * times:
                        up = (1 + c * mpmath.mpf(tau)) / 2
                        law = [a * (1 - up) + b * up for a, b in zip(law + [0], [0] + law)]
                out.append(law)
            return out

        p, q = (laws(v) for v in row["victim_u_then_r"])
        bound, total = mpmath.e ** mpmath.mpf(row["epsilon_exact"]), mpmath.mpf(0)
        for cell in itertools.product(*(range(len(a)) for a in p)):
            one = mpmath.fprod(a[k] for a, k in zip(p, cell))
            two = mpmath.fprod(a[k] for a, k in zip(q, cell))
            total += max(one - bound * two, 0)
        assert total > row["delta"], (row, total)


# ---------------------------------------------------------------- attacks on one report

def loss_and_slopes(u, r, w, s, m, c):
    """Sum over coordinates of the largest log ratio over counts, for rows of pairs, and its slopes. The ratio of two counts' laws is
    monotone in the count (independent bits with ordered chances), so the largest is at 0 or m ones."""
    rows = np.tril_indices(u.shape[1])

    def stack(u, r):
        return np.concatenate((r[:, None] * u, u[:, rows[0]] * u[:, rows[1]]), axis=1)

    v, x = stack(u, r), stack(w, s)
    shifts = m - 1 - 2 * np.arange(m)

    def log_end(v, sign):
        tau = np.clip(m * v[:, :, None] + shifts, -1, 1)
        inside = np.abs(m * v[:, :, None] + shifts) < 1
        return np.log1p(sign * c * tau).sum(axis=2), (sign * c * m * inside / (1 + sign * c * tau)).sum(axis=2)

    ends = [(log_end(v, sign), log_end(x, sign)) for sign in (1, -1)]
    ratios = [a[0] - b[0] for a, b in ends]
    first = ratios[0] >= ratios[1]
    loss = np.where(first, ratios[0], ratios[1]).sum(axis=1)
    at_v = np.where(first, ends[0][0][1], ends[1][0][1])
    at_x = -np.where(first, ends[0][1][1], ends[1][1][1])

    def back(slope, u, r):
        d = u.shape[1]
        to_u, to_r = slope[:, :d] * r[:, None], (slope[:, :d] * u).sum(axis=1)
        full = np.zeros((len(u), d, d))
        full[:, rows[0], rows[1]] = slope[:, d:]
        to_u = to_u + np.einsum("nij,nj->ni", full, u) + np.einsum("nij,ni->nj", full, u)
        return to_u, to_r

    return loss, back(at_v, u, r), back(at_x, w, s)


def project(u, r):
    norm = np.linalg.norm(u, axis=1, keepdims=True)
    return u / np.maximum(norm, 1.0), np.clip(r, 0.0, 1.0)


def local_attack(d, m, c):
    rng = np.random.default_rng(10_000 * d + 100 * m + round(100 * c))
    restarts = 300
    u = rng.standard_normal((restarts, d))
    w = rng.standard_normal((restarts, d))
    # Half of the starts: both equal in size in every entry but the first few, with opposite signs.
    k = restarts // 2
    u[:k] = 1.0
    w[:k] = -1.0
    u[:k] += rng.standard_normal((k, d)) * rng.random((k, 1))
    w[:k] += rng.standard_normal((k, d)) * rng.random((k, 1))
    few = rng.integers(0, d, k)
    for i in range(0, k, 2):
        w[i, : few[i]] *= -1
        u[i, few[i]:] *= rng.random()
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    # Corners on the manifold are good starts when bits have a grid (m > 1).
    u *= np.where(rng.random((restarts, 1)) < 0.8, 1.0, rng.random((restarts, 1)))
    w *= np.where(rng.random((restarts, 1)) < 0.8, 1.0, rng.random((restarts, 1)))
    r = np.where(rng.random(restarts) < 0.85, 1.0, rng.random(restarts))
    s = np.where(rng.random(restarts) < 0.85, 1.0, rng.random(restarts))
    best, holder = np.full(restarts, -np.inf), [u.copy(), r.copy(), w.copy(), s.copy()]
    steps = 160
    for step in range(steps):
        loss, (du, dr), (dw, ds) = loss_and_slopes(u, r, w, s, m, c)
        better = loss > best
        best = np.where(better, loss, best)
        for kept, new in zip(holder, (u, r, w, s)):
            kept[better] = new[better]
        rate = 0.25 * (1 - step / steps) ** 2
        size = np.sqrt((du**2).sum(1) + (dw**2).sum(1) + dr**2 + ds**2) + 1e-12
        du, dw = du / size[:, None] * rate, dw / size[:, None] * rate
        u, r = project(u + du, r + dr / size * rate)
        w, s = project(w + dw, s + ds / size * rate)
    # Random moves of the best ones that are kept when they help: kinks stop a gradient.
    top = np.argsort(-best, kind="stable")[:24]
    u, r, w, s = (kept[top] for kept in holder)
    best = best[top]
    scale = 0.1
    for step in range(700):
        if step % 70 == 69:
            scale *= 0.5
        sparse = rng.random((len(top), d)) < (1.0 if step % 2 else 2.0 / d)
        a, ra = project(u + scale * sparse * rng.standard_normal(u.shape), r + scale * rng.standard_normal(len(r)) * (step % 3 == 0))
        b, rb = project(w + scale * sparse * rng.standard_normal(w.shape), s + scale * rng.standard_normal(len(s)) * (step % 3 == 1))
        loss, _, _ = loss_and_slopes(a, ra, b, rb, m, c)
        better = loss > best
        best = np.where(better, loss, best)
        for kept, new in zip((u, r, w, s), (a, ra, b, rb)):
            kept[better] = new[better]
    i = int(np.argmax(best))
    pair = [[*map(float, u[i]), float(r[i])], [*map(float, w[i]), float(s[i])]]
    # The value that is written is computed plainly from the pair, over all counts.
    plain = 0.0
    for v, x in zip(values(pair[0]), values(pair[1])):
        plain += float(np.max(np.log(count_law(v, m, c) / count_law(x, m, c))))
    assert abs(plain - best[i]) < 1e-9 * max(1, plain), (plain, best[i])
    return {"dimension": d, "bits": m, "keep": c, "epsilon_local_attack": plain * DOWN, "inputs_u_then_r": pair}


def write(name, rows):
    with open(os.path.join(HERE, name), "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def main():
    began = time.time()
    rows = []
    wanted = [(1, m, size, 1) for m in (1, 2, 3, 8) for size in (2, 3, 5, 8, 12)]
    wanted += [(1, 1, size, 1) for size in (30, 50, 100, 200, 1000)]
    wanted += [(2, m, size, 1) for m in (1, 2) for size in (2, 3, 4, 6, 12)]
    wanted += [(1, 1, size, 2) for size in (4, 12, 50)]
    for d, m, size, reports in wanted:
        for c in KEEPS:
            rows += Search(d, m, c, size, reports).run()
        print(f"d={d} m={m} l={size} reports={reports}: {time.time() - began:.0f} s", file=sys.stderr)
    check_with_mpmath([r for r in rows if r["reports_in_batch"] == 1 and r["victim_u_then_r"] and r["keep"] == 0.5 and (
        (r["dimension"] == 1 and r["batch_size"] <= 12) or (r["dimension"] == 2 and r["batch_size"] <= 3 and r["bits"] == 1))])
    print(f"checked with mpmath: {time.time() - began:.0f} s", file=sys.stderr)
    write("sandwich.json", rows)
    local = [local_attack(d, m, c) for d in (1, 2, 3, 5, 10) for m in (1, 2, 3) for c in (0.05, 0.1, 0.2, 0.3, 0.5, 0.8)]
    write("local.json", local)
    print(f"{len(rows)} batches, {len(local)} reports: {time.time() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
