"""A second implementation of docs/formats.md, written from that page alone; section names are those of the page.

Floats are used where a result feeds an integer, in the order the page states; statistics and models use 60 digits, and so do the
words' table and the scores of codebook reports (40).
"""
import bisect
import functools
import hashlib
import hmac
import math
import re
import statistics
import struct
from fractions import Fraction

import mpmath
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from mpmath import mp, mpf

mp.dps = 60
HALF, FULL, U32 = 2**31, 2**32, 2**32 - 1


class Tape:
    """Pseudo-random bytes: SHA-256 of "seed/counter", counter = 0, 1, ..."""

    def __init__(self, seed):
        self.seed, self.counter, self.buffer = seed, 0, b""

    def take(self, n):
        while len(self.buffer) < n:
            self.buffer += hashlib.sha256(f"{self.seed}/{self.counter}".encode()).digest()
            self.counter += 1
        out, self.buffer = self.buffer[:n], self.buffer[n:]
        return out

    def u32(self):
        return int.from_bytes(self.take(4), "big")

    def unit(self):
        return int.from_bytes(self.take(7), "big") % 2**53 / 2**53

    def context(self, d, bound):
        """A vector of norm at most about 0.99 * bound and at least about half of that."""
        x = [2 * self.unit() - 1 for _ in range(d)]
        scale = bound * (0.5 + 0.49 * self.unit()) / math.sqrt(sum_in_order([y * y for y in x]))
        return [y * scale for y in x]


def sum_in_order(values):
    total = 0.0  # not sum(): newer Pythons compensate, which is another result
    for value in values:
        total = total + value
    return total


def squared_norm(u):
    return sum_in_order([y * y for y in u[::2]]) + sum_in_order([y * y for y in u[1::2]])


# ---- Mechanism -------------------------------------------------------------------------------------------------

def size_d(d):
    return d * (d + 3) // 2


LAYOUTS = {"shared": (), "per-action": ("slots",), "hybrid": ("slots", "shared")}


def block_sizes(mech):
    """Slots, features of a slot's own, shared features."""
    d, shared = mech["dimension"], {"shared": mech["dimension"], "per-action": 0, "hybrid": mech.get("shared")}[mech["layout"]]
    return mech.get("slots", 0), d - shared, shared


def total_coordinates(mech):
    slots, own, shared = block_sizes(mech)
    return size_d(shared) + slots * (size_d(own) + own * shared)


FIELDS = {"dimension", "context_bound", "layout", "slots", "shared", "closes", "opens", "grace", "central_delta", "participations",
          "honest_fraction", "schedule"}
LAW_FIELDS = {"bits": ("bits", "flip"), "codebook": ("words", "chosen", "outside", "moment_weight")}
STAGE_FIELDS = {"rounds", "size", "window", "encoding"}.union(*LAW_FIELDS.values())
LATEST = 253402300800000


def parse_fraction(text):
    match = re.fullmatch(r"(0|[1-9][0-9]*)/([1-9][0-9]*)", text)
    if not match:
        return None
    n, k = int(match[1]), int(match[2])
    return (n, k) if 0 < n < k <= U32 and math.gcd(n, k) == 1 else None


def mechanism_errors(mech):
    """The rows of the table that do not hold."""
    bad, plan, d = set(), mech["schedule"], mech["dimension"]
    between = lambda value, low, high: low <= value <= high
    check = lambda name, holds: holds or bad.add(name)
    timed = mech["closes"] == "time"
    check("unknown field", mech.keys() <= FIELDS and all(s.keys() <= STAGE_FIELDS for s in plan))
    check("unknown variant", mech["closes"] in ("count", "time") and mech["layout"] in LAYOUTS
          and all(s["encoding"] in LAW_FIELDS for s in plan))
    if "unknown variant" in bad:
        return bad
    check("layout", all((name in mech) == (name in LAYOUTS[mech["layout"]]) for name in ("slots", "shared")))
    if "layout" in bad:
        return bad
    check("slots", between(mech.get("slots", 1), 1, 10000))
    check("shared", "shared" not in mech or between(mech["shared"], 1, d - 1))
    if bad & {"slots", "shared"}:
        return bad
    slots, own, shared = block_sizes(mech)
    check("parameters", mech["layout"] != "hybrid" or slots * own + shared <= 1000)
    check("coordinates", "parameters" in bad or d > 1000 or total_coordinates(mech) <= size_d(1000))
    if bad & {"parameters", "coordinates"}:
        return bad
    laws = lambda encoding: [s for s in plan if s["encoding"] == encoding]
    check("encoding", all((name in s) == (name in LAW_FIELDS[s["encoding"]])
                          for s in plan for names in LAW_FIELDS.values() for name in names))
    if "encoding" in bad:
        return bad
    length = sum(s["rounds"] * s.get("window", 0) for s in plan)
    check("opens", ("opens" in mech) == timed and (not timed or int(mech["opens"]) + length <= LATEST))
    check("window", all(between(s.get("window", 0), 10, U32) if timed else "window" not in s for s in plan))
    check("dimension", between(d, 1, 1000))
    check("context_bound", between(mech["context_bound"], 1e-20, 1e20))
    check("schedule", between(len(plan), 1, 10000) and all(
        any(a.get(key) != b.get(key) for key in STAGE_FIELDS - {"rounds"}) for a, b in zip(plan, plan[1:])))
    check("rounds", all(between(s["rounds"], 1, U32) for s in plan) and sum(s["rounds"] for s in plan) <= U32 - 1)
    check("size", all(between(s["size"], 1, U32) for s in plan))
    check("bits", all(between(s["bits"], 1, 4095) and s["bits"] * total_coordinates(mech) <= 2**24 for s in laws("bits")))
    check("flip", all(parse_fraction(s["flip"]) for s in laws("bits")))
    words = laws("codebook")
    check("words", all(between(s["words"], 2, 256) for s in words))
    check("chosen", "words" in bad or all(between(s["chosen"], 1, s["words"] // 2) for s in words))
    check("outside", all(parse_fraction(s["outside"]) for s in words) and (bad & {"words", "chosen"} or all(
        Fraction(*parse_fraction(s["outside"])) < 1 - Fraction(s["chosen"], s["words"]) for s in words)))
    check("moment_weight", all(between(s["moment_weight"], 1, 255) for s in words))
    check("grace", between(mech["grace"], 0, 0 if timed else 1000))
    check("central_delta", 0 < mech["central_delta"] < 1)
    check("participations", between(mech["participations"], 1, U32))
    check("honest_fraction", 0 < mech["honest_fraction"] <= 1)
    return bad


def mechanism_hash(mech):
    layout = [list(LAYOUTS).index(mech["layout"]) + 1] + [mech[name] for name in LAYOUTS[mech["layout"]]]
    out = b"incrowd/mechanism/v1\0" + struct.pack(
        f">Id{len(layout)}IIQIdIdI", mech["dimension"], mech["context_bound"], *layout, ["count", "time"].index(mech["closes"]),
        int(mech.get("opens", 0)), mech["grace"], mech["central_delta"], mech["participations"],
        mech["honest_fraction"], len(mech["schedule"]))
    for s in mech["schedule"]:
        out += struct.pack(">3I", s["rounds"], s["size"], s.get("window", 0))
        if s["encoding"] == "bits":
            out += struct.pack(">4I", 1, s["bits"], *parse_fraction(s["flip"]))
        else:
            out += struct.pack(">6I", 2, s["words"], s["chosen"], *parse_fraction(s["outside"]), s["moment_weight"])
    return hashlib.sha256(out).hexdigest()


def stage_of(mech, number):
    """The stage of a round, None if the schedule does not have it."""
    end = 0
    for s in mech["schedule"]:
        end += s["rounds"]
        if 1 <= number <= end:
            return s
    return None


def window_of(mech, number):
    """When a round opens and closes, in milliseconds since 1970."""
    start = int(mech["opens"])
    for s in mech["schedule"]:
        if number <= s["rounds"]:
            return start + (number - 1) * s["window"], start + number * s["window"]
        start, number = start + s["rounds"] * s["window"], number - s["rounds"]
    return None


# ---- Coordinates of a report, coins ------------------------------------------------------------------------------

def coordinates(d, bound, x, r):
    """The D values v, and the first problem or None."""
    u, problem = [xi / bound for xi in x], None
    if len(x) != d:
        problem = "dimension"
    elif not all(map(math.isfinite, x + u + [r])):
        problem = "not_finite"
    if problem:
        u, r = [0.0] * d, 0.0
    if not 0 <= r <= 1:
        problem, r = "reward", 0.0 if r < 0 else 1.0
    s = squared_norm(u)
    if s > 1:
        problem = "norm" if s > 1.000000002 else problem
        largest = max(map(abs, u))
        u = [ui / largest for ui in u]
        root = math.sqrt(squared_norm(u))
        u = [ui / root for ui in u]
    return [r * ui for ui in u] + [u[i] * u[k] for i in range(d) for k in range(i + 1)], problem


def thresholds(v, flip, m):
    n, k = parse_fraction(flip)
    c, limit = (k - n) / k, (k - n) * HALF // k
    rows = []
    for vj in v:
        taus = [m * vj + (m - 1 - 2 * q) for q in range(m)]
        sizes = [math.floor(((3 + min(c * abs(tau), limit / HALF)) - 3) * HALF) for tau in taus]
        rows.append([HALF + (size if tau >= 0 else -size) for tau, size in zip(taus, sizes)])
    return rows


# ---- Words -------------------------------------------------------------------------------------------------------

STEPS, CLIP = 16, 136
WORD_THRESHOLDS = [int(mp.nint(2**63 * mp.erf((m - mpf(1) / 2) / STEPS / mp.sqrt(2)))) for m in range(1, CLIP + 1)]


def chacha_block(key, counter, nonce):
    """The 16 words of one block of ChaCha20 with a 64-bit counter and a 64-bit nonce (Bernstein 2008)."""
    start = struct.unpack("<16I", b"expand 32-byte k" + key + struct.pack("<QQ", counter, nonce))
    s = list(start)
    for _ in range(10):
        for a, b, c, d in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
                           (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
            for x, y, z, left in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                s[x] = (s[x] + s[y]) & U32
                turned = s[z] ^ s[x]
                s[z] = (turned << left | turned >> (32 - left)) & U32
    return [(x + y) & U32 for x, y in zip(s, start)]


def magnitude(r):
    return bisect.bisect_right(WORD_THRESHOLDS, r)


def normal_size(r):
    """x > 0 with P(|X| < x) = (r + 1/2)/2^63, X standard normal, to 25 digits."""
    with mpmath.workdps(40):
        tail = (2**63 - mpf(r) - mpf(1) / 2) / 2**63
        x, last = mpf(-statistics.NormalDist().inv_cdf(float(tail / 2))), None
        while last is None or abs(x - last) > mpf(10)**-20:  # the error is squared in each step of Newton's method
            last = x
            x += (mp.erfc(x / mp.sqrt(2)) - tail) * mp.exp(x * x / 2) * mp.sqrt(mp.pi / 2)
        return x


class Words:
    """The words that a seed expands to, for statistics of `entries` = D + 1 entries."""

    def __init__(self, seed, entries):
        self.key, self.stride, self.blocks = seed + b"incrowd/words/v1", (entries + 15) // 16 * 16, {}

    def bits(self, nonce, word, entry):
        at = word * self.stride + entry
        if (nonce, at // 16) not in self.blocks:
            self.blocks[nonce, at // 16] = chacha_block(self.key, at // 16, nonce)
        return self.blocks[nonce, at // 16][at % 16]

    def raw(self, word, entry):
        """Sign and 63 bits."""
        high = self.bits(0, word, entry)
        return -1 if high >> 31 else 1, (high & (HALF - 1)) << 32 | self.bits(1, word, entry)

    def entry(self, word, entry):
        sign, r = self.raw(word, entry)
        return sign * magnitude(r)

    def normal(self, word, entry):
        sign, r = self.raw(word, entry)
        return sign * normal_size(r)


# ---- Codebook reports --------------------------------------------------------------------------------------------

def scales(d, weight):
    """What the D values are multiplied with, as floats."""
    w = weight / 256
    moment, diagonal, other = math.sqrt(w), math.sqrt(1 - w), math.sqrt(2 * (1 - w))
    return [moment] * d + [diagonal if k == i else other for i in range(d) for k in range(i + 1)]


def statistic(d, v, weight):
    """z+ with the sums in the order of the page."""
    z = [scale * value for scale, value in zip(scales(d, weight), v)]
    square = sum_in_order([entry * entry for entry in z])
    return z + [math.sqrt(1 - square) if square < 1 else 0.0]


def choose_words(seed, z, law):
    """Indices of the k words with the largest exact scores in ascending order, and the gap to the next score."""
    words = Words(seed, len(z))
    score = lambda i: mp.fsum(mpf(entry) * words.normal(i, j) for j, entry in enumerate(z) if entry != 0)
    ranked = sorted((-score(i), i) for i in range(law["words"]))
    k = law["chosen"]
    return sorted(i for _, i in ranked[:k]), float(ranked[k][0] - ranked[k - 1][0])


def below(limit, random, at):
    """A uniform integer below the limit, and where the next byte is."""
    while True:
        uniform, at = int.from_bytes(random[at:at + 4], "big"), at + 4
        if uniform < FULL // limit * limit:
            return uniform % limit, at


def pick_word(law, chosen, random, at):
    """The index to send, and where the next byte is."""
    numerator, denominator = parse_fraction(law["outside"])
    coin, at = below(denominator, random, at)
    others = [i for i in range(law["words"]) if i not in chosen]
    place, at = below(len(others if coin < numerator else chosen), random, at)
    return (others if coin < numerator else chosen)[place], at


# ---- Report ------------------------------------------------------------------------------------------------------

def payload_size(mech, number):
    law = stage_of(mech, number)
    return 17 if law["encoding"] == "codebook" else (total_coordinates(mech) * law["bits"].bit_length() + 7) // 8


def pack_report(mech, number, ident, content):
    """`content` is the counts, or seed and index."""
    head = b"\1" + bytes.fromhex(mechanism_hash(mech))[:8] + struct.pack(">I", number) + ident
    if stage_of(mech, number)["encoding"] == "codebook":
        return head + content[0] + bytes([content[1]])
    w = stage_of(mech, number)["bits"].bit_length()  # = ceil(log2(m + 1))
    bits = 0
    for j, count in enumerate(content):
        bits |= count << (j * w)
    return head + bits.to_bytes(payload_size(mech, number), "little")


def unpack_report(mech, data):
    """The error's name, or round, id and counts (or seed and index)."""
    if len(data) < 29:
        return "short"
    if data[0] != 1:
        return "version"
    if data[1:9] != bytes.fromhex(mechanism_hash(mech))[:8]:
        return "task"
    number = struct.unpack(">I", data[9:13])[0]
    if not stage_of(mech, number):
        return "round"
    if len(data) != 29 + payload_size(mech, number):
        return "short" if len(data) < 29 + payload_size(mech, number) else "long"
    if stage_of(mech, number)["encoding"] == "codebook":
        return "index" if data[45] >= stage_of(mech, number)["words"] else (number, data[13:29], (data[29:45], data[45]))
    m, total = stage_of(mech, number)["bits"], total_coordinates(mech)
    w, bits = m.bit_length(), int.from_bytes(data[29:], "little")
    counts = [bits >> (j * w) & (2**w - 1) for j in range(total)]
    if max(counts) > m:
        return "count"
    return "padding" if bits >> (total * w) else (number, data[13:29], counts)


def flip_coins(rows, random):
    """Counts, and how many bytes after the id were used."""
    coins = [(j, t) for j, row in enumerate(rows) for t in row]
    counts, at = [0] * len(rows), len(coins)
    for (j, t), top in zip(coins, random):
        below = top < t >> 24
        if top == t >> 24:
            below = int.from_bytes(random[at:at + 3], "big") < t % 2**24
            at += 3
        counts[j] += below
    return counts, at


# ---- Batch sums, statistics and model ----------------------------------------------------------------------------

def exact(q):
    return mpf(q.numerator) / q.denominator


def paper_noise(d, L, S, sigma, delta, learner, st):
    t, m, p = mpf(st["t"]), st["law"]["bits"], exact(Fraction(*parse_fraction(st["law"]["flip"])))
    g = mp.log(2 * t / delta)
    lam = mp.sqrt(8 * t * g) / m + 2 * mp.sqrt(8 * t * g) / ((1 - p) * mp.sqrt(m)) + mpf(learner["confidence"]["ridge"])
    beta = (sigma * mp.sqrt(8 * g + d * mp.log(3 + t / lam)) + S * mp.sqrt(6 * L**2 * lam)
            + mp.sqrt(2) * d / mp.sqrt(lam)
            * (2 * mp.sqrt(p * (1 - p / 2) * t * m * g) + 8 * g / 3 + mp.sqrt(8) / m * mp.sqrt(t * g)))
    nu = 2 * L**2 * lam
    return nu, None, nu, beta


def proven_noise(d, L, S, delta_j, st):
    logs = mp.log(6 * d * (3 if st["along"] else 1) / delta_j)
    nu = L**2 * ((mp.sqrt(st["gram_proxy"]) + mp.sqrt(st["rounding"])) * mp.sqrt(2 * d * logs)
                 + mp.sqrt(2 * st["along"] * logs) + d * st["gram_bias"])
    eta = L * (mp.sqrt(st["moment_proxy"]) * (mp.sqrt(d) + mp.sqrt(2 * mp.log(3 / delta_j)))
               + mp.sqrt(d) * st["moment_bias"])
    roots = mpmath.polyroots([S**2, 0, -eta**2, -2 * nu * eta**2], maxsteps=500, extraprec=200)
    positive = [z.real for z in roots if abs(z.imag) < mpf(10)**-40 * abs(z) and z.real > 0]
    assert len(positive) == 1
    return nu, eta, positive[0]


def calibrated_noise(d, L, st):
    nu = L**2 * mp.sqrt(st["gram_variance"]) * (2 * mp.sqrt(d) + mpf("0.9793") * mpf(d)**(-mpf(1) / 6))
    w = 1 - mpf(2) / (9 * d) + mpf("1.6449") * mp.sqrt(mpf(2) / (9 * d))
    return nu, L * mp.sqrt(st["moment_variance"]) * mp.sqrt(d) * w**mpf("1.5"), nu


def largest_normals(n, k):
    """Mean and mean square of the k largest of n standard normals, by the density of each order statistic."""
    with mpmath.workdps(30):
        tail = lambda y: mp.erfc(y / mp.sqrt(2)) / 2
        # P(y is among the k largest) summed over all n, per k: n/k phi(y) P(Bin(n-1, tail) <= k-1).
        def weight(y):
            q, p = tail(y), tail(-y)
            return mp.fsum(mp.binomial(n - 1, i) * q**i * p**(n - 1 - i) for i in range(k)) * mp.npdf(y) * n / k
        # The trapezoid rule is exact far beyond doubles for analytic integrands that vanish at both ends.
        step = mpf(1) / 24
        nodes = [(y, weight(y)) for y in (step * i for i in range(-260, 261))]
        return step * mp.fsum(y * f for y, f in nodes), step * mp.fsum(y * y * f for y, f in nodes)


@functools.cache
def word_moments(n, k, outside):
    """mu, the variance along z+, and the variance proxy along it."""
    o, (mean, square) = Fraction(*parse_fraction(outside)), largest_normals(n, k)
    gain = exact(1 - o - o * Fraction(k, n - k)) * mean
    variance = exact(1 - o) * square + exact(o) * (n - k * square) / (n - k) - gain**2
    g = exact(o * Fraction(n, n - k))
    coin = mpf(1) / 4 if abs(g - mpf(1) / 2) < mpf("1e-3") else (1 - 2 * g) / (2 * mp.log((1 - g) / g))
    return gain, variance, 1 + mean**2 * coin


def bits_noise(s):
    """What one report adds to the noise."""
    m, c = s["bits"], 1 - Fraction(*parse_fraction(s["flip"]))
    proxy, variance, bias = exact(1 / (m * c * c)), exact((1 - c * c * (1 - Fraction(1, m))) / (m * c * c)), exact(1 / (c * 2**30))
    return {"moment_proxy": proxy, "gram_proxy": proxy, "moment_variance": variance, "gram_variance": variance,
            "moment_bias": bias, "gram_bias": bias, "along": mpf(0), "rounding": mpf(0)}


def codebook_noise(s, d, total):
    """For an estimate of d parameters and reports of `total` coordinates."""
    mu, along, proxy = word_moments(s["words"], s["chosen"], s["outside"])
    w, rounding = mpf(s["moment_weight"]) / 256, mpf(1) / (12 * STEPS**2)
    entry = (max(along, mpf(1)) + rounding) / mu**2
    bias = mp.sqrt(total + 1) / (2**20 * mu)
    gram = mpf(d + 1) / (2 * d) / ((1 - w) * mu**2)
    return {"moment_proxy": max(proxy, mpf(1)) * (1 + mp.sqrt(rounding))**2 / (w * mu**2), "gram_proxy": gram,
            "rounding": gram * rounding, "along": (1 + proxy) / mu**2,
            "moment_variance": entry / w, "gram_variance": entry / (2 * (1 - w)),
            "moment_bias": bias / mp.sqrt(w), "gram_bias": bias / mp.sqrt(1 - w)}


def estimates(mech, s, sums):
    """What the sums say about the sum of v."""
    if s["encoding"] == "bits":
        c = 1 - Fraction(*parse_fraction(s["flip"]))
        return [exact((Fraction(2 * total, s["bits"]) - s["size"]) / c) for total in sums]
    d, w = mech["dimension"], mpf(s["moment_weight"]) / 256
    mu, _, _ = word_moments(s["words"], s["chosen"], s["outside"])
    scale = [mp.sqrt(w)] * d + [mp.sqrt((1 - w) * (1 if k == i else 2)) for i in range(d) for k in range(i + 1)]
    return [total / (STEPS * mu * a) for total, a in zip(sums, scale)]


def add_release(mech, st, release):
    """Adds one batch to the statistics st."""
    s, d, L = stage_of(mech, release["round"]), mech["dimension"], mpf(mech["context_bound"])
    estimate = estimates(mech, s, [int(total) for total in release["sums"]])
    st["moment"] = [a + L * b for a, b in zip(st["moment"], estimate)]
    st["gram"] = [a + L * L * b for a, b in zip(st["gram"], estimate[d:])]
    for name, value in (bits_noise(s) if s["encoding"] == "bits" else codebook_noise(s, d, size_d(d))).items():
        st[name] += s["size"] * value
    st.update(j=st["j"] + 1, t=st["t"] + s["size"], law=s)


def fit(mech, learner, st):
    """The diagnostics (mpf), theta and the rows of the width factor."""
    d, L, S = mech["dimension"], mpf(mech["context_bound"]), mpf(learner["parameter_bound"])
    sigma, delta = mpf(learner["reward_noise"]), mpf(learner["failure_probability"])
    mode = learner["confidence"]["mode"]
    delta_j = delta / (st["j"] * (st["j"] + 1))
    if mode == "paper":
        nu, eta, z, beta = paper_noise(d, L, S, sigma, delta, learner, st)
    elif mode == "proven":
        nu, eta, z = proven_noise(d, L, S, delta_j, st)
    else:
        nu, eta, z = calibrated_noise(d, L, st)
    cell = lambda i, k: st["gram"][max(i, k) * (max(i, k) + 1) // 2 + min(i, k)]
    gram = mp.matrix([[cell(i, k) for k in range(d)] for i in range(d)])
    lowest = min(mp.eigsy(gram, eigvals_only=True))
    shift = max(mpf(0), z - (lowest + nu + z))
    lam = nu + z + shift
    V = gram + lam * mp.eye(d)
    C = mp.cholesky(V)
    log_det, small = 2 * mp.fsum(mp.log(C[i, i]) for i in range(d)), min(mp.eigsy(V, eigvals_only=True))
    if mode != "paper":
        width = (sigma * mp.sqrt(2 * mp.log(3 / delta_j) + max(0, log_det - d * mp.log(z)))
                 + S * min(mp.sqrt(nu + lam), (nu + lam) / mp.sqrt(small)) + eta / mp.sqrt(max(z, small)))
        beta = width * mpf(learner["confidence"].get("exploration", 1))
    W = mp.inverse(C)
    theta = mp.lu_solve(V, mp.matrix(st["moment"]))
    numbers = {"nu": nu, "eta": eta, "z": z, "lambda": lam, "ridge_shift": shift, "log_det": log_det,
               "smallest_eigenvalue": small, "beta": beta}
    return numbers, [float(a) for a in theta], [float(W[i, k]) for i in range(d) for k in range(i + 1)]


def replay(mech, learner, sums):
    """For every release the model or None, and the diagnostics."""
    d, update, last, models, diagnostics = mech["dimension"], learner["update"], None, [], []
    st = dict.fromkeys(("moment_proxy", "gram_proxy", "moment_variance", "gram_variance", "moment_bias", "gram_bias",
                        "along", "rounding"), mpf(0))
    st.update(j=0, t=0, moment=[mpf(0)] * d, gram=[mpf(0)] * (size_d(d) - d))
    version = 0
    for release in sums:
        add_release(mech, st, release)
        numbers, theta, factor = fit(mech, learner, st)
        diagnostics.append({key: None if value is None else float(value) for key, value in numbers.items()})
        if last is not None and update["rule"] == "determinant":
            gap = numbers["log_det"] - last - mp.log(1 + mpf(update["growth"]))
            assert abs(gap) > 1e-6, "too close to call in doubles"
            if gap < 0:
                models.append(None)
                continue
        last, version = numbers["log_det"], version + 1
        models.append({"mechanism": release["mechanism"], "version": str(version), "round": release["round"],
                       "theta": theta, "width_factor": factor,
                       "confidence_width": float(numbers["beta"])})
    return models, diagnostics


def sums_error(mech, number, release):
    """The name of the error of a release offered when round `number` is due, or None."""
    if not all(re.fullmatch("0|-?[1-9][0-9]*", text) and -2**63 <= int(text) < 2**63 for text in release["sums"]):
        return "integer"
    if (release["previous"] is None) != (release["round"] == 1):
        return "previous"
    if release["mechanism"] != mechanism_hash(mech):
        return "mechanism"
    if release["round"] != number:
        return "round"
    s = stage_of(mech, number)
    if release["size"] != s["size"]:
        return "size"
    if len(release["sums"]) != total_coordinates(mech):
        return "length"
    low, high = (0, s["bits"]) if s["encoding"] == "bits" else (-CLIP, CLIP)
    return None if all(s["size"] * low <= int(text) <= s["size"] * high for text in release["sums"]) else "range"


# ---- Feature maps ------------------------------------------------------------------------------------------------

def map_error(fmap):
    names = [[field["name"] for field in fmap[side]] for side in ("context", "action")]
    if any(len(set(side)) < len(side) for side in names):
        return "duplicate name"
    if any(a not in names[0] or b not in names[1] for a, b in fmap["interactions"]):
        return "unknown interaction field"
    for field in fmap["context"] + fmap["action"]:
        if field["kind"] == "hashed" and not 1 <= field["buckets"] <= 1000:
            return "buckets"
        if field["kind"] == "number" and not field["min"] < field["max"] <= field["min"] + 8e307:
            return "range"
        if field["kind"] == "category" and not 0 < len(field["values"]) == len(set(field["values"])):
            return "values"
    sizes = [{field["name"]: entries_of(field) for field in fmap[side]} for side in ("context", "action")]
    entries = fmap["bias"] + sum(sizes[0].values()) + sum(sizes[1].values())
    entries += sum(sizes[0][a] * sizes[1][b] for a, b in fmap["interactions"])
    return None if 1 <= entries <= 1000 else "size"


def entries_of(field):
    return {"number": lambda: 1, "hashed": lambda: field["buckets"], "category": lambda: len(field["values"])}[field["kind"]]()


def fnv(text):
    h = 2166136261
    for byte in text.encode():
        h = (h ^ byte) * 16777619 % FULL
    return h


def block(field, value):
    """The block of one field and whether there is an error to tell."""
    kind = field["kind"]
    if kind == "number":
        if not isinstance(value, (bool, int, float)):
            return [0.0], True
        low, high = float(field["min"]), float(field["max"])
        y = min(high, max(low, float(value)))
        return [(2 * (y - low)) / (high - low) - 1], y != float(value)
    text = ("true" if value else "false") if isinstance(value, bool) else value
    if kind == "category":
        return [float(text == known) for known in field["values"]], text not in field["values"]
    out = [0.0] * field["buckets"]
    if not isinstance(text, str):
        return out, True
    h = fnv(f"{field['name']}={text}")
    out[(h >> 1) % field["buckets"]] = -1.0 if h % 2 else 1.0
    return out, False


def features(fmap, context, action):
    blocks, problems, sides = [[1.0]] * fmap["bias"], set(), []
    for side, values in (("context", context), ("action", action)):
        sides.append({})
        for field in fmap[side]:
            made, wrong = block(field, values.get(field["name"]))
            blocks.append(made)
            sides[-1][field["name"]] = made
            problems |= {field["name"]} if wrong else set()
    blocks += [[p * q for p in sides[0][a] for q in sides[1][b]] for a, b in fmap["interactions"]]
    scale = fmap["context_bound"] / math.sqrt(len(blocks))
    return [scale * entry for made in blocks for entry in made], sorted(problems)


# ---- Task --------------------------------------------------------------------------------------------------------

TASK_FIELDS, KEY_FIELDS = {"mechanism", "learner", "policy", "keys"}, {"shuffler", "bandit"}


def task_error(task):
    """The name of the error of a task with keys, or None. The learner and all of the policy but `smallest_batch` are taken as valid."""
    keys = task.get("keys", {})
    if not task.keys() <= TASK_FIELDS or not keys.keys() <= KEY_FIELDS:
        return "unknown field"
    if "mechanism" not in task or keys.keys() != KEY_FIELDS:
        return "missing field"
    if not all(re.fullmatch("[0-9a-f]{64}", key) for key in keys.values()):
        return "key"
    smallest = task.get("policy", {}).get("smallest_batch", 1)
    return "size" if min(s["size"] for s in task["mechanism"]["schedule"]) < smallest else None


def task_id(task):
    keys = bytes.fromhex(task["keys"]["shuffler"]) + bytes.fromhex(task["keys"]["bandit"])
    return hashlib.sha256(b"incrowd/task/v1\0" + bytes.fromhex(mechanism_hash(task["mechanism"])) + keys).hexdigest()


# ---- Signed documents --------------------------------------------------------------------------------------------

P, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493


def signed_bytes(document, task, body):
    return f"incrowd/{document}/v1".encode() + b"\0" + bytes.fromhex(task) + body


def verification_key(secret):
    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def sign(secret, document, task, body):
    return Ed25519PrivateKey.from_private_bytes(secret).sign(signed_bytes(document, task, body))


def small_order(encoded):
    """Whether 8 times the point is the neutral element (RFC 8032, 5.1.3 and 5.1.4); None if these bytes are no point."""
    d = -121665 * pow(121666, -1, P) % P
    y, odd = int.from_bytes(encoded, "little") % 2**255 % P, encoded[31] >> 7
    square = (y * y - 1) * pow(d * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if x * x % P == square else x * pow(2, (P - 1) // 4, P) % P
    if x * x % P != square:
        return None
    x = P - x if x % 2 != odd else x
    for _ in range(3):
        product = d * x * x * y * y % P
        x, y = 2 * x * y * pow(1 + product, -1, P) % P, (y * y + x * x) * pow(1 - product, -1, P) % P
    return (x % P, y) == (0, 1)


def signature_error(key, document, task, body, text):
    """`text` for what is no signature at all, `signature` for one that does not hold, or None."""
    if not re.fullmatch("[0-9a-f]{128}", text):
        return "text"
    signature = bytes.fromhex(text)
    if small_order(key) is not False or small_order(signature[:32]) is not False:
        return "signature"
    try:  # refuses S >= ORDER, and compares R with the encoding of S B - k A
        Ed25519PublicKey.from_public_bytes(key).verify(signature, signed_bytes(document, task, body))
    except InvalidSignature:
        return "signature"


def sign_with_neutral_r(secret, document, task, body):
    """A signature whose R is the neutral element: only a strict verifier refuses it."""
    digest = hashlib.sha512(secret).digest()
    scalar = int.from_bytes(digest[:32], "little") & ((1 << 254) - 8) | 1 << 254
    r = (1).to_bytes(32, "little")
    k = int.from_bytes(hashlib.sha512(r + verification_key(secret) + signed_bytes(document, task, body)).digest(), "little")
    return r + (k * scalar % ORDER).to_bytes(32, "little")


# ---- Sealed report -----------------------------------------------------------------------------------------------
# RFC 9180 by hand: base mode, DHKEM(X25519, HKDF-SHA256) = 0x0020, HKDF-SHA256 = 0x0001, ChaCha20Poly1305 = 0x0003.

KEM, SUITE = b"KEM\0\x20", b"HPKE\0\x20\0\1\0\3"


def extract(salt, suite, label, material):
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + material, "sha256")


def expand(key, suite, label, info, length):
    out = block = b""
    info = struct.pack(">H", length) + b"HPKE-v1" + suite + label + info
    for i in range(1, length // 32 + 2):
        block = hmac.digest(key, block + info + bytes([i]), "sha256")
        out += block
    return out[:length]


def sealing_key(secret):
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def diffie_hellman(secret, public):
    """None for a public key of small order (RFC 9180, 7.1.4)."""
    try:
        return X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        return None


def hpke(dh, encapsulated, public, info):
    """The cipher and the nonce of the first and only message."""
    shared = expand(extract(b"", KEM, b"eae_prk", dh), KEM, b"shared_secret", encapsulated + public, 32)
    context = b"\0" + extract(b"", SUITE, b"psk_id_hash", b"") + extract(b"", SUITE, b"info_hash", info)
    secret = extract(shared, SUITE, b"secret", b"")
    return (ChaCha20Poly1305(expand(secret, SUITE, b"key", context, 32)),
            expand(secret, SUITE, b"base_nonce", context, 12))


def sealing_info(task):
    return b"incrowd/sealed-report/v1\0" + bytes.fromhex(task)


def seal(task, public, number, round_number, ident, report, ephemeral):
    header = struct.pack(">BBI", 1, number, round_number) + ident
    encapsulated = sealing_key(ephemeral)
    cipher, nonce = hpke(diffie_hellman(ephemeral, public), encapsulated, public, sealing_info(task))
    return header + encapsulated + cipher.encrypt(nonce, report, header)


def unseal(mech, task, keys, data):
    """The error's name, or the report's bytes; keys maps the numbers of the keys that open to their secrets."""
    if len(data) < 70:
        return "short"
    if data[0] != 1:
        return "version"
    if data[1] not in keys:
        return "key"
    secret, encapsulated = keys[data[1]], data[22:54]
    dh = diffie_hellman(secret, encapsulated)
    if dh is None:
        return "open"
    cipher, nonce = hpke(dh, encapsulated, sealing_key(secret), sealing_info(task))
    try:
        report = cipher.decrypt(nonce, data[54:], data[:22])
    except InvalidTag:
        return "open"
    inner = unpack_report(mech, report)
    if isinstance(inner, str):
        return "report"
    return report if inner[:2] == (struct.unpack(">I", data[2:6])[0], data[6:22]) else "header"
