#!/usr/bin/env python3
"""Writes the numbers that the tests of crates/privacy compare with: clones.json, composition.json.

    python3 -m venv .venv && .venv/bin/pip install -r requirements.txt && .venv/bin/python generate.py

Independent of the Rust code: clones from the two laws of Feldman, McMillan, Talwar 2021 as defined, composition from the
definition of k-fold randomized response and from dp-accounting, all sums in mpmath or integers with at least 70 digits. With --check it
writes nothing and fails when a file differs.
"""

import json
import math
import pathlib
import sys

import mpmath as mp
from dp_accounting.pld import common, privacy_loss_distribution as pld

mp.mp.dps = 80
HERE = pathlib.Path(__file__).resolve().parent


def number(x):
    return float(mp.nstr(x, 17))


# ---- clones ----

def clone_counts(n, eps0):
    """(c, P(C = c)) with C ~ Bin(n-1, e^-eps0), without masses below 1e-32."""
    q = mp.exp(-eps0)
    mode = int(n * q)
    mass = lambda c: mp.binomial(n - 1, c) * q**c * (1 - q) ** (n - 1 - c)
    out = []
    for step, c in ((1, min(mode, n - 1)), (-1, min(mode, n - 1) - 1)):
        m = mass(c) if 0 <= c else mp.mpf(0)
        while 0 <= c <= n - 1 and m > mp.mpf(10) ** -32:
            out.append((c, m))
            m = m * (n - 1 - c) * q / ((c + 1) * (1 - q)) if step == 1 else m * c * (1 - q) / ((n - c) * q)
            c += step
    return out


ONE = 1 << 240  # fixed point: integers are exact enough (1e-72) and far faster than mpf


def divergence_given(c, gains):
    """sum_k max(0, P(k) - e Q(k)); P: A+B, Q: A+1-B, A ~ Bin(c, 1/2), B ~ Ber(w), in units of 1/ONE. From the largest k
    down, where largest leaves out a probability below 2 exp(-2 * 7**2) < 1e-42 (Hoeffding)."""
    shifted, kept = gains  # w - e(1-w) and (1-w) - e w
    k = min(c + 1, int(c / 2 + 7 * mp.sqrt(c)) + 2)
    here = (math.comb(c, k) << 240) >> c  # P(A = k)
    below = (math.comb(c, k - 1) << 240) >> c  # P(A = k-1)
    total = 0
    while k >= 0:
        gain = (shifted * below + kept * here) >> 240
        if gain <= 0 and below > 1:
            break
        total += max(gain, 0)
        k -= 1
        here, below = below, (below * k // (c - k + 1) if k >= 1 else 0)
    return total


def clones_divergence(counts, eps0, eps):
    w, e = mp.exp(eps0) / (mp.exp(eps0) + 1), mp.exp(eps)
    gains = (int((w - e * (1 - w)) * ONE), int(((1 - w) - e * w) * ONE))
    return sum(mass * divergence_given(c, gains) for c, mass in counts) / ONE


def root(f, low, high, tolerance):
    """Regula falsi with halving; f falls from positive to negative."""
    f_low, f_high, side = f(low), f(high), 0
    for _ in range(100):
        x = (low * f_high - high * f_low) / (f_high - f_low)
        y = f(x)
        if abs(y) < tolerance or high - low < tolerance * high / 1000:
            return x
        if y > 0:
            low, f_low = x, y
            if side == 1:
                f_high /= 2
            side = 1
        else:
            high, f_high = x, y
            if side == -1:
                f_low /= 2
            side = -1
    raise RuntimeError("no root")


CLONES = [(2, 1.0, 1e-6), (50, 0.5, 1e-3), (1000, 1.0, 1e-6), (1000, 2.0, 1e-6), (1000, 1.0, 1e-12), (1000, 0.01, 1e-12),
          (10000, 1.0, 1e-6), (10000, 4.0, 1e-6), (10000, 4.0, 1e-12), (100000, 4.0, 1e-6), (100000, 6.0, 1e-12),
          (100000, 4.0, 1e-15), (1000, 8.0, 1e-6)]


def clones():
    rows = []
    for n, eps0, delta in CLONES:
        counts, d = clone_counts(n, mp.mpf(eps0)), mp.mpf(delta)
        low = mp.mpf(0)
        high = mp.mpf(eps0) * (1 - mp.mpf(10) ** -12)
        f = lambda x: mp.log(clones_divergence(counts, mp.mpf(eps0), x) / d)
        # A guess from Hoeffding keeps the evaluations few and far from the slow middle.
        mean = float(n * mp.exp(-eps0)) + 1
        guess = 2 * mp.atanh(min(mp.mpf("0.99"), mp.sqrt(2 * mp.log(1 / d) / mean)) * mp.tanh(mp.mpf(eps0) / 2))
        low, high = (guess / 4, guess) if f(guess) < 0 else (guess, high)
        rows.append({"batch_size": n, "epsilon_local": eps0, "delta": delta,
                     "epsilon": number(root(f, low, high, mp.mpf(10) ** -9))})
        print(rows[-1], flush=True)
    deltas = []
    for n, eps0, eps in [(100, 1.0, 0.3), (1000, 1.0, 0.3), (10000, 2.0, 0.3), (1000, 1.0, 0.001), (30, 3.0, 2.9)]:
        value = clones_divergence(clone_counts(n, mp.mpf(eps0)), mp.mpf(eps0), mp.mpf(eps))
        deltas.append({"batch_size": n, "epsilon_local": eps0, "epsilon_central": eps, "delta": number(value)})
    tails = []
    for n, p, k in [(1000, 0.5, 380), (1000, 0.1, 40), (100000, 0.018, 1400), (10**6, 0.3, 297000), (10**6, 0.9, 896000),
                    (50, 0.25, 0), (10**6, 0.001, 700), (10, 0.5, 8)]:
        q = mp.mpf(p)
        term = mp.binomial(n, k) * q**k * (1 - q) ** (n - k)
        total, j = mp.mpf(0), k
        while j >= 0 and term > total * mp.mpf(10) ** -40:
            total += term
            term = term * j * (1 - q) / ((n - j + 1) * q)
            j -= 1
        tails.append({"trials": n, "probability": p, "count": k, "at_most": number(total)})
    return {"epsilons": rows, "deltas": deltas, "tails": tails}


# ---- composition ----

def optimal(eps, delta, k, delta_total):
    """k-fold randomized response that fails with probability delta: smallest epsilon at delta_total."""
    e, d = mp.mpf(eps), mp.mpf(delta)
    leak = 1 - (1 - d) ** k
    masses = [((k - 2 * j) * e, mp.binomial(k, j) * mp.exp((k - j) * e) / (1 + mp.exp(e)) ** k) for j in range(k + 1)]

    def at(x):
        return leak + (1 - leak) * sum(m * (1 - mp.exp(x - loss)) for loss, m in masses if loss > x)

    low, high = mp.mpf(0), k * e
    if at(low) <= delta_total:
        return low
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if at(middle) <= delta_total else (middle, high)
    return high


def dp_accounting(eps, delta, k, delta_total):
    one = pld.from_privacy_parameters(common.DifferentialPrivacyParameters(eps, delta), value_discretization_interval=eps / 64)
    return one.self_compose(k).get_epsilon_for_delta(delta_total)


def composition():
    rows = []
    for eps, delta, k, total in [(0.1, 0.0, 10, 1e-6), (0.1, 1e-8, 10, 1e-6), (0.5, 1e-9, 5, 1e-6), (1.0, 0.0, 30, 1e-5),
                                 (0.05, 1e-9, 200, 1e-6), (0.01, 1e-10, 1000, 1e-6), (2.0, 1e-7, 3, 1e-6), (0.1, 0.0, 4, 1e-12)]:
        rows.append({"epsilon": eps, "delta": delta, "times": k, "delta_total": total,
                     "optimal": number(optimal(eps, delta, k, total)), "dp_accounting": dp_accounting(eps, delta, k, total)})
        print(rows[-1], flush=True)
    return {"homogeneous": rows}


def main():
    check = "--check" in sys.argv
    for name, make in (("composition", composition), ("clones", clones)):
        text = json.dumps(make(), indent=1) + "\n"
        path = HERE / f"{name}.json"
        if check and path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path} is not what this script computes")
        if not check:
            path.write_text(text, encoding="utf-8")


main()
