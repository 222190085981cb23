"""A second implementation of docs/formats.md, written from that page alone; section names are those of the page.

Floats are used where a result feeds an integer, in the order the page states; statistics and models start from exact
rationals and use 60 digits.
"""
import hashlib
import hmac
import math
import re
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


FIELDS = {"dimension", "context_bound", "layout", "closes", "opens", "grace", "central_delta", "participations",
          "honest_fraction", "schedule"}
STAGE_FIELDS = {"rounds", "size", "window", "encoding", "bits", "flip"}
LATEST = 253402300800000


def parse_flip(text):
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
    check("unknown variant", mech["closes"] in ("count", "time") and mech["layout"] == "shared"
          and all(s["encoding"] == "bits" for s in plan))
    length = sum(s["rounds"] * s.get("window", 0) for s in plan)
    check("opens", ("opens" in mech) == timed and (not timed or int(mech["opens"]) + length <= LATEST))
    check("window", all(between(s.get("window", 0), 10, U32) if timed else "window" not in s for s in plan))
    check("dimension", between(d, 1, 1000))
    check("context_bound", between(mech["context_bound"], 1e-20, 1e20))
    check("schedule", between(len(plan), 1, 10000) and all(
        any(a.get(key) != b.get(key) for key in ("size", "window", "encoding", "bits", "flip")) for a, b in zip(plan, plan[1:])))
    check("rounds", all(between(s["rounds"], 1, U32) for s in plan) and sum(s["rounds"] for s in plan) <= U32 - 1)
    check("size", all(between(s["size"], 1, U32) for s in plan))
    check("bits", all(between(s["bits"], 1, 4095) and s["bits"] * size_d(d) <= 2**24 for s in plan))
    check("flip", all(parse_flip(s["flip"]) for s in plan))
    check("grace", between(mech["grace"], 0, 0 if timed else 1000))
    check("central_delta", 0 < mech["central_delta"] < 1)
    check("participations", between(mech["participations"], 1, U32))
    check("honest_fraction", 0 < mech["honest_fraction"] <= 1)
    return bad


def mechanism_hash(mech):
    out = b"incrowd/mechanism/v1\0" + struct.pack(
        ">IdIIQIdIdI", mech["dimension"], mech["context_bound"], 1, ["count", "time"].index(mech["closes"]),
        int(mech.get("opens", 0)), mech["grace"], mech["central_delta"], mech["participations"],
        mech["honest_fraction"], len(mech["schedule"]))
    for s in mech["schedule"]:
        out += struct.pack(">7I", s["rounds"], s["size"], s.get("window", 0), 1, s["bits"], *parse_flip(s["flip"]))
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
    n, k = parse_flip(flip)
    c, limit = (k - n) / k, (k - n) * HALF // k
    rows = []
    for vj in v:
        taus = [m * vj + (m - 1 - 2 * q) for q in range(m)]
        sizes = [math.floor(((3 + min(c * abs(tau), limit / HALF)) - 3) * HALF) for tau in taus]
        rows.append([HALF + (size if tau >= 0 else -size) for tau, size in zip(taus, sizes)])
    return rows


# ---- Report ------------------------------------------------------------------------------------------------------

def payload_size(mech, number):
    return (size_d(mech["dimension"]) * stage_of(mech, number)["bits"].bit_length() + 7) // 8


def pack_report(mech, number, ident, counts):
    w = stage_of(mech, number)["bits"].bit_length()  # = ceil(log2(m + 1))
    bits = 0
    for j, count in enumerate(counts):
        bits |= count << (j * w)
    head = b"\1" + bytes.fromhex(mechanism_hash(mech))[:8] + struct.pack(">I", number) + ident
    return head + bits.to_bytes(payload_size(mech, number), "little")


def unpack_report(mech, data):
    """The error's name, or round, id and counts."""
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
    m, total = stage_of(mech, number)["bits"], size_d(mech["dimension"])
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
    t, m, p = mpf(st["t"]), st["m"], exact(1 - st["c"])
    g = mp.log(2 * t / delta)
    lam = mp.sqrt(8 * t * g) / m + 2 * mp.sqrt(8 * t * g) / ((1 - p) * mp.sqrt(m)) + mpf(learner["confidence"]["ridge"])
    beta = (sigma * mp.sqrt(8 * g + d * mp.log(3 + t / lam)) + S * mp.sqrt(6 * L**2 * lam)
            + mp.sqrt(2) * d / mp.sqrt(lam)
            * (2 * mp.sqrt(p * (1 - p / 2) * t * m * g) + 8 * g / 3 + mp.sqrt(8) / m * mp.sqrt(t * g)))
    nu = 2 * L**2 * lam
    return nu, None, nu, beta


def proven_noise(d, L, S, delta_j, s, bias):
    nu = L**2 * (s * mp.sqrt(2 * d * mp.log(6 * d / delta_j)) + d * bias)
    eta = L * (s * (mp.sqrt(d) + mp.sqrt(2 * mp.log(3 / delta_j))) + mp.sqrt(d) * bias)
    roots = mpmath.polyroots([S**2, 0, -eta**2, -2 * nu * eta**2], maxsteps=500, extraprec=200)
    positive = [z.real for z in roots if abs(z.imag) < mpf(10)**-40 * abs(z) and z.real > 0]
    assert len(positive) == 1
    return nu, eta, positive[0]


def calibrated_noise(d, L, v):
    nu = L**2 * v * (2 * mp.sqrt(d) + mpf("0.9793") * mpf(d)**(-mpf(1) / 6))
    w = 1 - mpf(2) / (9 * d) + mpf("1.6449") * mp.sqrt(mpf(2) / (9 * d))
    return nu, L * v * mp.sqrt(d) * w**mpf("1.5"), nu


def add_release(mech, st, release):
    """Adds one batch to the statistics st, in exact rationals; c = 1 - p."""
    s, d, L = stage_of(mech, release["round"]), mech["dimension"], Fraction(mech["context_bound"])
    m, l, c = s["bits"], s["size"], 1 - Fraction(*parse_flip(s["flip"]))
    estimate = [(Fraction(2 * int(total), m) - l) / c for total in release["sums"]]
    st["moment"] = [a + L * b for a, b in zip(st["moment"], estimate)]
    st["gram"] = [a + L * L * b for a, b in zip(st["gram"], estimate[d:])]
    st.update(j=st["j"] + 1, t=st["t"] + l, s2=st["s2"] + l / (m * c * c),
              v2=st["v2"] + l * (1 - c * c * (1 - Fraction(1, m))) / (m * c * c), bias=st["bias"] + l / (c * 2**30), m=m, c=c)


def fit(mech, learner, st):
    """The diagnostics (mpf), theta and the rows of the width factor."""
    d, L, S = mech["dimension"], mpf(mech["context_bound"]), mpf(learner["parameter_bound"])
    sigma, delta = mpf(learner["reward_noise"]), mpf(learner["failure_probability"])
    mode = learner["confidence"]["mode"]
    delta_j, s = delta / (st["j"] * (st["j"] + 1)), mp.sqrt(exact(st["s2"]))
    if mode == "paper":
        nu, eta, z, beta = paper_noise(d, L, S, sigma, delta, learner, st)
    elif mode == "proven":
        nu, eta, z = proven_noise(d, L, S, delta_j, s, exact(st["bias"]))
    else:
        nu, eta, z = calibrated_noise(d, L, mp.sqrt(exact(st["v2"])))
    cell = lambda i, k: exact(st["gram"][max(i, k) * (max(i, k) + 1) // 2 + min(i, k)])
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
    theta = mp.lu_solve(V, mp.matrix([exact(a) for a in st["moment"]]))
    numbers = {"nu": nu, "eta": eta, "z": z, "lambda": lam, "ridge_shift": shift, "log_det": log_det,
               "smallest_eigenvalue": small, "beta": beta}
    return numbers, [float(a) for a in theta], [float(W[i, k]) for i in range(d) for k in range(i + 1)]


def replay(mech, learner, sums):
    """For every release the model or None, and the diagnostics."""
    d, update, last, models, diagnostics = mech["dimension"], learner["update"], None, [], []
    st = {"j": 0, "t": 0, "s2": Fraction(0), "v2": Fraction(0), "bias": Fraction(0), "moment": [Fraction(0)] * d,
          "gram": [Fraction(0)] * (size_d(d) - d)}
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
    if len(release["sums"]) != size_d(mech["dimension"]):
        return "length"
    return None if all(0 <= int(text) <= s["size"] * s["bits"] for text in release["sums"]) else "range"


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
