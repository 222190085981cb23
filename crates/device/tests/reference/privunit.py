"""Expected squared error of one codebook report against PrivUnitG (Asi, Feldman, Talwar 2022) at the same local epsilon.

    python privunit.py    prints the ratios, exit 1 if one is above 1.06

Both estimate the unit vector z+ of D + 1 entries, D = d(d+3)/2, without bias. PrivUnitG sends a normal vector on the right side of a
hyperplane across z+ with probability p and on the other side otherwise, in full precision; its split of epsilon between p and the
hyperplane's place is optimised numerically here. A codebook report has at most 256 words, of entries rounded to 1/16.
"""
import math
import pathlib
import statistics
import sys
from fractions import Fraction

sys.path.insert(0, str(pathlib.Path(__file__).parents[4] / "vectors"))
from reference import word_moments  # noqa: E402

LIMIT, EPSILON, WORDS = 1.06, 4.0, 256
NORMAL = statistics.NormalDist()


def privunit_error(entries, epsilon, share):
    """With logit(p) = share * epsilon and the other side of the hyperplane as likely as logit = (1 - share) * epsilon says."""
    expit = lambda y: 1 / (1 + math.exp(-y))
    p, q = expit(share * epsilon), expit((1 - share) * epsilon)
    t = NORMAL.inv_cdf(q)
    density = NORMAL.pdf(t)
    gain = p * density / (1 - q) - (1 - p) * density / q
    square = p * (1 + t * density / (1 - q)) + (1 - p) * (1 - t * density / q)
    return (entries - 1 + square) / gain**2 - 1


def best_privunit(entries, epsilon):
    low, high = 0.0, 1.0
    for _ in range(200):  # the error has one minimum
        a, b = low + (high - low) * 0.4, low + (high - low) * 0.6
        if privunit_error(entries, epsilon, a) < privunit_error(entries, epsilon, b):
            high = b
        else:
            low = a
    best = privunit_error(entries, epsilon, (low + high) / 2)
    assert all(privunit_error(entries, epsilon, i / 1000) >= best * (1 - 1e-12) for i in range(1, 1000))
    return best


def largest(n, k):
    """Mean and mean square of the k largest of n standard normals."""
    mean = square = 0.0
    for node in range(-1000, 1001):
        y = node / 100
        above, below = math.erfc(y / math.sqrt(2)) / 2, math.erfc(-y / math.sqrt(2)) / 2
        among = sum(math.comb(n - 1, i) * above**i * below**(n - 1 - i) for i in range(k))
        weight = n / k * NORMAL.pdf(y) * among / 100
        mean, square = mean + y * weight, square + y * y * weight
    return mean, square


def outside(n, k, epsilon):
    """The smallest o with denominator 2^30 whose local epsilon is at most the one given."""
    exact = (n - k) / (n - k + k * math.exp(epsilon))
    return Fraction(math.ceil(exact * 2**30), 2**30)


def codebook_error(entries, n, k, epsilon):
    o, (mean, square) = outside(n, k, epsilon), largest(n, k)
    assert math.log((1 - o) * (n - k) / (o * k)) <= epsilon
    gain = float(1 - o - o * Fraction(k, n - k)) * mean
    second = float(1 - o) * square + float(o) * (n - k * square) / (n - k)
    exact = word_moments(n, k, str(o))
    assert abs(gain / exact[0] - 1) < 1e-9 and abs(second - gain**2 - exact[1]) < 1e-9
    return (entries - 1 + second - gain**2 + entries / 3072) / gain**2, gain


def main():
    bad = False
    for d in (5, 10, 20):
        entries = d * (d + 3) // 2 + 1
        peer = best_privunit(entries, EPSILON)
        (ours, gain), k = min((codebook_error(entries, WORDS, k, EPSILON), k) for k in range(15, 20))
        assert 15 < k < 19, "the best k is inside"
        ratio = ours / peer
        bad |= not ratio <= LIMIT
        print(f"d = {d}, epsilon {EPSILON:g}, {WORDS} words, k = {k}, mu = {gain:.4f}: {ours:.3f}, PrivUnitG {peer:.3f}, ratio {ratio:.4f}")
    sys.exit(bad)


if __name__ == "__main__":
    main()
