"""Makes the test vectors in v1/ with reference.py.

    python generate.py            write the files
    python generate.py --check    compare the files on disk with fresh ones, exit 1 if one differs
"""
import copy
import hashlib
import hmac
import json
import math
import pathlib
import struct
import sys
from fractions import Fraction

from reference import (CLIP, FULL, HALF, LATEST, ORDER, STEPS, U32, WORD_THRESHOLDS, Tape, Words, chacha_block, choose_words,
                       coordinates, diffie_hellman, features, flip_coins, hpke, magnitude, map_error, mechanism_errors,
                       mechanism_hash, normal_size, pack_report, parse_fraction, pick_word, replay, seal, sealing_info,
                       sealing_key, sign, sign_with_neutral_r, signature_error, size_d, stage_of, statistic, sum_in_order,
                       sums_error, task_error, task_id, thresholds, unpack_report, unseal, verification_key, window_of,
                       word_moments)


# ---- Mechanism -------------------------------------------------------------------------------------------------

OPENS = "1800000000000"


def stage(rounds=10, size=100, bits=1, flip="1/2", window=None):
    times = {} if window is None else {"window": window}
    return {"rounds": rounds, "size": size, **times, "encoding": "bits", "bits": bits, "flip": flip}


def codebook(rounds=10, size=100, words=16, chosen=5, outside="1/4", weight=128, window=None):
    times = {} if window is None else {"window": window}
    return {"rounds": rounds, "size": size, **times, "encoding": "codebook", "words": words, "chosen": chosen,
            "outside": outside, "moment_weight": weight}


def mechanism(d=3, stages=None, bound=1.0, grace=0, delta=1e-6, participations=1, honest=1.0, opens=None):
    closes = {"closes": "count"} if opens is None else {"closes": "time", "opens": opens}
    return {"dimension": d, "context_bound": bound, "layout": "shared", **closes, "grace": grace,
            "central_delta": delta, "participations": participations, "honest_fraction": honest,
            "schedule": stages or [stage()]}


def mechanism_cases():
    three = [stage(2, 300, 1, "1/2"), stage(3, 900, 2, "3/10"), stage(1, 2700, 4, "1/10")]
    good = {
        "the example of the page": mechanism(5, [stage(1000, 100, 1, "53/100")]),
        "smallest dimension": mechanism(1), "dimension 10": mechanism(10), "three stages": mechanism(4, three),
        "non-dyadic floats": mechanism(3, None, 0.1, 3, 1.1e-7, 12, 0.7),
        "smallest values": mechanism(1, [stage(1, 1, 1, f"1/{U32}")], 1e-20, 0, 5e-324, 1, 5e-324),
        "largest values": mechanism(1000, [stage(U32 - 1, U32, 33, f"{U32 - 1}/{U32}")], 1e20, 1000,
                                    0.9999999999999999, U32, 1.0),
        "most bits": mechanism(2, [stage(7, 50, 4095, "2/3")], 2.5, 1, 1e-9, 2, 0.3333333333333333),
        "most rounds in two stages": mechanism(2, [stage(HALF), stage(HALF - 2, 101)]),
        "stages that differ in the flip only": mechanism(2, [stage(), stage(flip="1/3")]),
        "a stage that comes back": mechanism(2, [stage(), stage(bits=2), stage()]),
        "rounds that close by time": mechanism(5, [stage(24, 5000, 256, "7/8", 3600000)], opens=OPENS),
        "growing windows": mechanism(2, [stage(2, 40, 8, "1/2", 10), stage(1, 80, 8, "1/2", 25),
                                         stage(3, 80, 8, "1/2", U32)], opens=OPENS),
        "stages that differ in the window only": mechanism(2, [stage(window=10), stage(window=11)], opens="0"),
        "a codebook": mechanism(5, [codebook(1000, 2000, 256, 17, "41/200")]),
        "smallest codebook": mechanism(1, [codebook(1, 1, 2, 1, f"1/{U32}", 1)]),
        "largest codebook": mechanism(1000, [codebook(U32 - 1, U32, 256, 128, f"{HALF - 1}/{U32}", 255)]),
        "one of 256 words": mechanism(2, [codebook(words=256, chosen=1, outside="127/128")]),
        "outside a hair below 1 - k/N": mechanism(2, [codebook(words=3, chosen=1, outside="2863311529/4294967294")]),
        "bits, then a codebook": mechanism(3, [stage(2, 300), codebook(8, 300)]),
        "a codebook, then bits": mechanism(3, [codebook(8, 300), stage(2, 300)]),
        "codebooks that differ in the words only": mechanism(2, [codebook(), codebook(words=17)]),
        "codebooks that differ in the chosen words only": mechanism(2, [codebook(), codebook(chosen=4)]),
        "codebooks that differ in the chance of others only": mechanism(2, [codebook(), codebook(outside="1/5")]),
        "codebooks that differ in the moment's weight only": mechanism(2, [codebook(), codebook(weight=127)]),
        "a codebook in rounds that close by time": mechanism(4, [codebook(3, 50, window=60000),
                                                                 stage(2, 50, window=60000)], opens=OPENS),
        "the last end": mechanism(1, [stage(1, 1, 1, "1/2", 1000)], opens=str(LATEST - 1000)),
    }
    cases = [{"name": name, "mechanism": mech, "hash": mechanism_hash(mech)} for name, mech in good.items()]
    for case in cases:
        mech = case["mechanism"]
        if mech["closes"] == "time":
            rounds = sum(s["rounds"] for s in mech["schedule"])
            case["windows"] = [list(map(str, window_of(mech, number))) for number in range(1, rounds + 1)]
    fields = [("dimension", [0, 1001]), ("context_bound", [0.0, -1.0, 9e-101, 1.1e20]), ("grace", [1001, FULL]),
              ("central_delta", [0.0, 1.0, -1e-6, 2.0]), ("participations", [0, FULL]),
              ("honest_fraction", [0.0, -0.5, 1.0000000000000002])]
    bad = [(f"{field} {value}", field, {**mechanism(), field: value}) for field, values in fields for value in values]
    fractions = ["0/1", "1/1", "3/2", "2/4", " 1/2", "1/2 ", "1/2/3", "+1/2", "-1/2", "01/2", "1/02", "1/+2", "1/0", "1/", "/2",
                 "1", "", "0.5", "1 / 2", "1/4294967296", "4294967297/8589934595"]
    stages = [("rounds", [0, U32, FULL]), ("size", [0, FULL]), ("bits", [0, 4096, FULL]), ("flip", fractions)]
    bad += [(f"{field} {json.dumps(value)}", field, mechanism(1, [{**stage(), field: value}]))
            for field, values in stages for value in values]
    # Of 16 words 5 are chosen: 11/16 is where nothing is said any more.
    laws = [("words", [0, 1, 257, FULL]), ("chosen", [0, 9, 16, FULL]), ("moment_weight", [0, 256, FULL]),
            ("outside", fractions + ["11/16", "3/4", f"{U32 - 1}/{U32}"])]
    bad += [(f"codebook, {field} {json.dumps(value)}", field, mechanism(1, [{**codebook(), field: value}]))
            for field, values in laws for value in values]
    without = lambda made, name: {key: value for key, value in made.items() if key != name}
    bad += [(f"codebook without {name}", "encoding", mechanism(3, [without(codebook(), name)]))
            for name in ("words", "chosen", "outside", "moment_weight")]
    bad += [(f"bits without {name}", "encoding", mechanism(3, [without(stage(), name)])) for name in ("bits", "flip")]
    bad += [(f"codebook with {name}", "encoding", mechanism(3, [{**codebook(), name: stage()[name]}])) for name in ("bits", "flip")]
    bad += [(f"bits with {name}", "encoding", mechanism(3, [{**stage(), name: codebook()[name]}]))
            for name in ("words", "chosen", "outside", "moment_weight")]
    bad += [("fields of a codebook, encoding bits", "encoding", mechanism(3, [{**codebook(), "encoding": "bits"}])),
            ("fields of bits, encoding codebook", "encoding", mechanism(3, [{**stage(), "encoding": "codebook"}])),
            ("more than half of three words", "chosen", mechanism(3, [codebook(words=3, chosen=2, outside="1/4")])),
            ("outside equal to 1 - k/N of two words", "outside", mechanism(3, [codebook(words=2, chosen=1, outside="1/2")])),
            ("second stage has a bad outside", "outside", mechanism(3, [codebook(), codebook(outside="2/8")])),
            ("equal codebooks", "schedule", mechanism(3, [codebook(), codebook()])),
            ("codebooks that differ in rounds only", "schedule", mechanism(3, [codebook(2), codebook(3)])),
            ("unknown field in a codebook stage", "unknown field", mechanism(3, [{**codebook(), "seed": 1}]))]
    bad += [("no stages", "schedule", {**mechanism(), "schedule": []}),
            ("equal neighbours", "schedule", mechanism(3, [stage(), stage()])),
            ("neighbours that differ in rounds only", "schedule", mechanism(3, [stage(2), stage(3)])),
            ("equal neighbours at the end", "schedule", mechanism(3, [stage(bits=2), stage(), stage()])),
            ("too many rounds together", "rounds", mechanism(3, [stage(HALF), stage(HALF - 1, 101)])),
            ("m*D too big", "bits", mechanism(1000, [stage(bits=34)])),
            ("second stage has a bad flip", "flip", mechanism(3, [stage(), stage(flip="4/6")])),
            ("unknown field in the mechanism", "unknown field", {**mechanism(), "epsilon": 1.0}),
            ("unknown field in a stage", "unknown field", mechanism(3, [{**stage(), "epsilon": 1.0}])),
            ("another layout", "unknown variant", {**mechanism(), "layout": "per-person"}),
            ("another rule of closing", "unknown variant", {**mechanism(), "closes": "size"}),
            ("another encoding", "unknown variant", mechanism(3, [{**stage(), "encoding": "floats"}])),
            ("a window where batches close by count", "window", mechanism(3, [stage(window=1000)])),
            ("no window where batches close by time", "window", mechanism(3, [stage()], opens=OPENS)),
            ("one stage without a window", "window", mechanism(3, [stage(window=1000), stage(size=7)], opens=OPENS)),
            ("a window below 10 ms", "window", mechanism(3, [stage(window=9)], opens=OPENS)),
            ("opens where batches close by count", "opens", {**mechanism(), "opens": OPENS}),
            ("no opens where batches close by time", "opens", {**mechanism(3, [stage(window=1000)]), "closes": "time"}),
            ("the schedule ends too late", "opens",
             mechanism(1, [stage(1, 1, 1, "1/2", 1000)], opens=str(LATEST - 999))),
            ("grace where batches close by time", "grace", mechanism(3, [stage(window=1000)], grace=1, opens=OPENS))]
    for name, error, mech in bad:
        assert mechanism_errors(mech) == {error}, name
        cases.append({"name": name, "mechanism": mech, "error": error})
    assert not any(map(mechanism_errors, good.values()))
    return cases


# ---- Coordinates of a report, coins ------------------------------------------------------------------------------

def threshold_error(v, flip, m, rows):
    """Largest |T/2^32 - (1/2 + c*tau/2)| in units of 2^-32, all exact."""
    c, worst = 1 - Fraction(*parse_fraction(flip)), Fraction(0)
    for vj, row in zip(v, rows):
        for q, t in enumerate(row):
            tau = min(Fraction(1), max(Fraction(-1), m * Fraction(vj) + (m - 1 - 2 * q)))
            worst = max(worst, abs(t - (HALF + c * tau * HALF)))
    return worst


def encode(value):
    """JSON has no literal for these."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def threshold_case(name, x, r, flip="1/2", m=1, bound=1.0, d=None, exact=False):
    d = d or len(x)
    v, problem = coordinates(d, bound, x, r)
    rows = thresholds(v, flip, m)
    assert threshold_error(v, flip, m, rows) < Fraction(101, 100), name
    if exact:  # v recomputed without floats
        u = [Fraction(xi) / Fraction(bound) for xi in x]
        real = [Fraction(r) * ui for ui in u] + [u[i] * u[k] for i in range(d) for k in range(i + 1)]
        assert threshold_error(real, flip, m, rows) == 0 and problem is None, name
    return {"name": name, "dimension": d, "context_bound": bound, "flip": flip, "bits": m,
            "x": [encode(xi) for xi in x], "reward": encode(r), "thresholds": rows, "problem": problem}


def threshold_cases():
    nan, inf, one, dyadic = math.nan, math.inf, [0.6, 0.3, -0.2], [0.5, -0.25, 0.125]
    cases = [threshold_case(f"dyadic, m = {m}, flip {flip}", dyadic, 0.75, flip, m, exact=True)
             for m in (1, 2, 3, 7, 8) for flip in ("1/2", "3/8")]
    cases += [threshold_case(f"dyadic, {name}", x, r, flip, m, bound, exact=True) for name, x, r, flip, m, bound in [
        ("ends of the range", [1.0], 1.0, "1/4", 1, 1.0), ("negative end", [-1.0], 1.0, "1/4", 3, 1.0),
        ("unit vector", [0.0, 1.0, 0.0, 0.0, 0.0], 1.0, "1/2", 2, 1.0), ("reward 0", dyadic, 0.0, "1/2", 2, 1.0),
        ("zero vector", [0.0, 0.0], 1.0, "1/2", 2, 1.0), ("negative zeros", [-0.0, 0.0], -0.0, "1/2", 3, 1.0),
        ("L = 4", [2.0, -1.0], 0.5, "3/4", 4, 4.0), ("L = 1/8", [0.0625, 0.03125], 1.0, "1/2", 1, 0.125)]]
    for i, (d, m, flip) in enumerate([(1, 1, "53/100"), (2, 2, "1/3"), (3, 3, "2/7"), (5, 7, "9/10"), (10, 8, "1/10"),
                                      (10, 1, "53/100"), (5, 1, "99/100"), (2, 8, "1/1000"), (1, 7, "5/11")]):
        tape = Tape(f"thresholds/{i}")
        bound = (1.0, 0.3, 7.7)[i % 3]
        cases.append(threshold_case(f"random, d = {d}, m = {m}, flip {flip}", tape.context(d, bound), tape.unit(),
                                    flip, m, bound))
    rest = [("c = 2^-32 about: no signal left", one, 0.9, f"{U32 - 1}/{U32}", 3),
            ("c near 0", one, 0.9, f"{U32 - 8}/{U32}", 2),
            ("c near 1", one, 0.9, f"1/{U32}", 3), ("c near 1, ends", [1.0], 1.0, f"1/{U32}", 2),
            ("c not dyadic, ends", [-1.0], 1.0, "1/3", 2), ("m = 4095", [0.1], 0.7, "1/3", 4095),
            ("norm a hair above L: scaled without error", [1.0000000005], 0.5, "1/3", 2),
            ("norm below the error's limit", [0.6000000003, 0.8000000004], 0.5, "1/3", 2),
            ("norm above the error's limit", [0.6000000012, 0.8000000012], 0.5, "1/3", 2),
            ("norm 5", [3.0, -4.0], 0.5, "1/3", 3), ("norm above L, three", [0.9, 0.9, -0.9], 1.0, "2/5", 7),
            ("huge", [1e300, -1e300, 1e299], 1.0, "1/3", 2),
            ("largest double", [1.7976931348623157e308], 1.0, "1/3", 1),
            ("square overflows", [1e200, 1.0], 0.25, "1/3", 2), ("subnormal entry", [5e-324, 0.5], 1.0, "1/3", 2),
            ("reward above 1", one, 1.5, "1/3", 2), ("reward just above 1", one, 1.0000000000000002, "1/3", 2),
            ("reward below 0", one, -0.25, "1/3", 2), ("reward 1e300", one, 1e300, "1/3", 1),
            ("norm before reward", [3.0, 4.0], 2.0, "1/3", 2),
            ("norm inside the slack, bad reward", [1.0000000005], 2.0, "1/3", 2),
            ("x NaN", [0.5, nan], 0.5, "1/3", 2), ("x infinite", [inf, 0.1], 0.5, "1/3", 2),
            ("x minus infinite", [-inf], 0.5, "1/3", 2), ("reward NaN", one, nan, "1/3", 2),
            ("reward infinite", one, inf, "1/3", 1), ("reward minus infinite", one, -inf, "1/3", 1),
            ("not finite before norm", [5.0, nan], 7.0, "1/3", 2)]
    cases += [threshold_case(*args) for args in rest]
    cases += [threshold_case("too few coordinates", [0.5], 0.5, "1/3", 2, d=2),
              threshold_case("too many coordinates", one, 0.5, "1/3", 2, d=2),
              threshold_case("no coordinates", [], 0.5, "1/3", 1, d=1),
              threshold_case("dimension before not finite", [nan, 0.1], inf, "1/3", 2, d=3),
              threshold_case("tiny L", [6e-101, -3e-101], 0.8, "1/3", 2, 1e-20),
              threshold_case("tiny L, x/L overflows", [1e250, 0.0], 0.8, "1/3", 2, 1e-20),
              threshold_case("tiny L, large x", [1e190, 1e189], 0.8, "1/3", 2, 1e-20),
              threshold_case("x/L overflows and bad reward", [1e300], 3.0, "1/3", 1, 1e-20),
              threshold_case("huge L", [6e99, 1e98], 0.8, "1/3", 2, 1e20),
              threshold_case("huge L, x/L is zero", [1e-300, 1e-290], 0.8, "1/3", 2, 1e20)]
    return cases


# ---- Words -------------------------------------------------------------------------------------------------------

def rfc_8439():
    """The block of RFC 8439, 2.3.2, whose counter and nonce are laid out differently in the same 16 bytes."""
    block = struct.pack("<16I", *chacha_block(bytes(range(32)), 1 | 0x09000000 << 32, 0x4A000000))
    assert block.hex().startswith("10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e")


def word_cases():
    rfc_8439()
    cases = [{"name": "thresholds", "kind": "thresholds", "thresholds": [str(t) for t in WORD_THRESHOLDS]}]
    seeds = {"zero": bytes(16), "ones": b"\xff" * 16, "random": Tape("words").take(16)}
    for name, seed in seeds.items():
        for d, indices in ((1, (0, 1)), (3, (0, 15)), (4, (0, 1, 63)), (5, (0, 200)), (10, (0, 1, 255))):
            total = size_d(d)  # with the lift 3, 10, 15, 21 and 66 entries
            for index in indices:
                words = Words(seed, total + 1)
                cases.append({"name": f"{name}, d = {d}, word {index}", "kind": "word", "seed": seed.hex(), "dimension": d,
                              "index": index, "entries": [words.entry(index, j) for j in range(total + 1)]})
    for d, index, entry in ((20, 255, 0), (20, 255, 230), (100, 7, 5150), (1000, 255, 501500), (1000, 0, 16)):
        words = Words(seeds["random"], size_d(d) + 1)
        cases.append({"name": f"single entry {entry}, d = {d}, word {index}", "kind": "entry", "seed": seeds["random"].hex(),
                      "dimension": d, "index": index, "entry": entry, "value": words.entry(index, entry),
                      "normal": float(words.normal(index, entry))})
    for m, t in enumerate(WORD_THRESHOLDS, 1):
        high, low = t >> 32, t & U32
        points = [(high, 0), (high, low - 1), (high, low), (high, U32), (high - 1, U32), (high + 1, 0)]
        points = [(a, b) for a, b in points if 0 <= b and a < HALF]
        cases.append({"name": f"around threshold {m}", "kind": "magnitudes",
                      "points": [[a, b, magnitude(a << 32 | b)] for a, b in points]})
    ends = [0, *WORD_THRESHOLDS, 2**63]
    tape, points = Tape("normals"), []
    for start, end in zip(ends, ends[1:]):
        inside = {start + (end - start) * part // 16 for part in range(16)} | {end - 1}
        inside |= {start + int.from_bytes(tape.take(8), "big") % (end - start) for _ in range(4)}
        points += [[str(r), float(normal_size(r))] for r in sorted(inside)]
    cases.append({"name": "normal variables", "kind": "normals", "points": points})
    return cases


# ---- Report ------------------------------------------------------------------------------------------------------

def make_tape(name, rows, ties):
    """Random bytes; ties maps a coin's number to -1, 0 or 1: its U is T - 1, T or T + 1. "all" does 0 to all."""
    tape, coins = Tape(f"reports/{name}"), [t for row in rows for t in row]
    ties = {i: 0 for i in range(len(coins))} if ties == "all" else ties
    ident, tops = tape.take(16), bytearray(tape.take(len(coins)))
    for i, step in ties.items():
        assert (coins[i] + step) >> 24 == coins[i] >> 24, name
        tops[i] = coins[i] >> 24
    tail = b""
    for i, t in enumerate(coins):
        if tops[i] == t >> 24:
            tail += ((t + ties[i]) % 2**24).to_bytes(3, "big") if i in ties else tape.take(3)
    return ident + bytes(tops) + tail


def report_case(name, mech, number, x, r, ties=None):
    v, problem = coordinates(mech["dimension"], mech["context_bound"], x, r)
    s = stage_of(mech, number)
    rows = thresholds(v, s["flip"], s["bits"])
    random = make_tape(name, rows, ties or {})
    counts, used = flip_coins(rows, random[16:])
    assert used + 16 == len(random)
    report = pack_report(mech, number, random[:16], counts)
    assert unpack_report(mech, report) == (number, random[:16], counts)
    return {"name": name, "mechanism": mech, "round": number, "x": [encode(xi) for xi in x], "reward": encode(r),
            "problem": problem, "random": random.hex(), "bytes_used": len(random), "counts": counts,
            "report": report.hex()}


def codebook_case(name, mech, number, x, r, coins=()):
    """A report of a codebook round; `coins` are the first 32-bit integers after the seed, random ones follow as they are needed."""
    law, d, tape = stage_of(mech, number), mech["dimension"], Tape(f"codebook/{name}")
    v, problem = coordinates(d, mech["context_bound"], x, r)
    ident, seed = tape.take(16), tape.take(16)
    chosen, gap = choose_words(seed, statistic(d, v, law["moment_weight"]), law)
    assert gap > 1e-6, f"{name}: two scores are too close"
    random = ident + seed + b"".join(struct.pack(">I", coin) for coin in coins) + tape.take(64)
    index, used = pick_word(law, chosen, random, 32)
    assert used >= 32 + 4 * len(coins), name
    report = pack_report(mech, number, ident, (seed, index))
    assert unpack_report(mech, report) == (number, ident, (seed, index)) and len(report) == 46
    return {"name": name, "mechanism": mech, "round": number, "x": [encode(xi) for xi in x], "reward": encode(r),
            "problem": problem, "random": random[:used].hex(), "bytes_used": used, "chosen": chosen, "seed": seed.hex(),
            "index": index, "report": report.hex()}


def codebook_reports():
    """Rounds 1 and 2 of `mixed` are bits, then come codebooks: 16 words, 64 words with two weights, 7 words."""
    mixed = mechanism(3, [stage(2), codebook(4), codebook(1, 100, 64, 20, "3/10", 1), codebook(1, 100, 64, 20, "3/10", 255),
                          codebook(2, 100, 7, 3, "2/7", 200)], 2.0, 1)
    wide, small = mechanism(10, [codebook(9, 500, 256, 17, "41/200")]), mechanism(1, [codebook(5, 10, 2, 1, "1/3", 64)])
    x3, never, always = [1.1, -0.4, 0.9], U32 - 3, 0
    good = [("codebook", mixed, 3, x3, 0.8), ("codebook, reward 0", mixed, 3, x3, 0.0), ("codebook, reward 1", mixed, 6, x3, 1.0),
            ("codebook, moment of weight 1/256", mixed, 7, x3, 0.7), ("codebook, moment of weight 255/256", mixed, 8, x3, 0.7),
            ("codebook, 7 words", mixed, 9, x3, 0.3), ("codebook, last round", mixed, 10, [-2.0, 0.0, 0.0], 1.0),
            ("codebook, sent from outside", mixed, 3, x3, 0.8, (always,)), ("codebook, sent from inside", mixed, 3, x3, 0.8, (never,)),
            ("codebook, coin just outside", mixed, 3, x3, 0.8, (4,)), ("codebook, coin just inside", mixed, 3, x3, 0.8, (5,)),
            ("codebook, first place of those chosen", mixed, 4, x3, 0.6, (never, 5)),
            ("codebook, last place of those chosen", mixed, 4, x3, 0.6, (never, 4)),
            ("codebook, first place of the others", mixed, 4, x3, 0.6, (always, 11)),
            ("codebook, last place of the others", mixed, 4, x3, 0.6, (always, 10)),
            ("codebook, place drawn again", mixed, 5, x3, 0.6, (never, U32, U32, 3)),
            ("codebook, place of the others drawn again", mixed, 5, x3, 0.6, (always, U32 - 3, 2)),
            ("codebook, place of the others is the last that counts", mixed, 5, x3, 0.6, (always, U32 - 4)),
            ("codebook, coin drawn again", mixed, 9, x3, 0.6, (U32 - 3, U32, always, 1)),
            ("codebook, coin is the last that counts", mixed, 9, x3, 0.6, (U32 - 4, U32 - 1)),
            ("codebook, zero vector", mixed, 3, [0.0, 0.0, 0.0], 1.0), ("codebook, negative zeros", mixed, 3, [-0.0, 0.0, -0.0], -0.0),
            ("codebook, one axis", mixed, 3, [0.0, 2.0, 0.0], 1.0), ("codebook, tiny vector", mixed, 3, [1e-200, 0.0, -1e-170], 1.0),
            ("codebook, zero vector after NaN", mixed, 3, [0.1, math.nan, 0.2], 0.5),
            ("codebook, zero vector after an infinite reward", mixed, 3, [0.1, 0.3, 0.2], math.inf),
            ("codebook, zero vector after a wrong dimension", mixed, 3, [0.1], 0.5),
            ("codebook, clipped norm", mixed, 3, [3.0, 1.0, -2.0], 0.5), ("codebook, clipped reward", mixed, 3, x3, -4.0),
            ("codebook, clipped norm and reward", mixed, 3, [3.0, 1.0, -2.0], 4.0),
            ("codebook, norm a hair above L", mixed, 3, [0.0, 2.0000000001, 0.0], 1.0),
            ("codebook, huge", mixed, 9, [1e300, -1e300, 1e299], 1.0),
            ("codebook, two words", small, 1, [0.77], 0.5), ("codebook, two words, outside", small, 5, [-1.0], 1.0, (always, 7)),
            ("codebook, 256 words, d = 10", wide, 1, Tape("wide").context(10, 1.0), 0.9),
            ("codebook, 256 words, d = 10, outside", wide, 9, Tape("wide").context(10, 1.0), 0.2, (always,))]
    cases = [codebook_case(*args) for args in good]
    assert {case["problem"] for case in cases} == {None, "dimension", "not_finite", "norm", "reward"}
    ident, seed = Tape("bad codebook reports").take(16), bytes(range(16))
    made = lambda mech, number, index: pack_report(mech, number, ident, (seed, index))
    relabel = lambda data, number: data[:9] + struct.pack(">I", number) + data[13:]
    base, bits = made(mixed, 3, 15), pack_report(mixed, 1, ident, [1] * 9)
    bad = [("codebook, index 16 of 16 words", mixed, made(mixed, 3, 16), "index"),
           ("codebook, index 255 of 64 words", mixed, made(mixed, 7, 255), "index"),
           ("codebook, index 7 of 7 words", mixed, made(mixed, 9, 7), "index"),
           ("codebook, index 2 of two words", small, made(small, 1, 2), "index"),
           ("codebook, last byte missing", mixed, base[:-1], "short"), ("codebook, no payload", mixed, base[:29], "short"),
           ("codebook, half a seed", mixed, base[:37], "short"), ("codebook, id cut", mixed, base[:28], "short"),
           ("codebook, one byte more", mixed, base + b"\0", "long"), ("codebook, twice the payload", mixed, base + base[29:], "long"),
           ("codebook, one byte more and a bad index", mixed, made(mixed, 3, 16) + b"\0", "long"),
           ("codebook, version 2", mixed, b"\2" + base[1:], "version"),
           ("codebook, of another mechanism", small, base, "task"), ("codebook, round after the last", mixed, relabel(base, 11), "round"),
           ("bits in a codebook round", mixed, relabel(bits, 3), "short"), ("a word in a round of bits", mixed, relabel(base, 1), "long")]
    return cases, bad


def report_cases():
    growing = mechanism(3, [stage(2, 100, 1, "1/2"), stage(1, 300, 2, "3/5"), stage(4, 900, 7, "4/5")], 2.0, 1)
    plain = {m: mechanism(3, [stage(bits=m, flip="2/5")]) for m in (1, 2, 3, 4, 5, 7, 8)}
    x3, wide = [0.3, -0.5, 0.7], mechanism(10, [stage(flip="53/100")])
    steps = {-1: "just below", 0: "equal", 1: "just above"}
    cases = [report_case(f"m = {m}", mech, 1, x3, 0.8) for m, mech in plain.items()]
    cases += [report_case(f"tie, U {text} T, m = {m}", plain[m], 3, x3, 0.6, {i: step for i in range(0, 3 * m, 2)})
              for m in (1, 3) for step, text in steps.items()]
    cases += [report_case(f"growing schedule, round {number}", growing, number, [1.1, -0.4, 0.9], 0.35, {number: -1})
              for number in (1, 2, 3, 4, 7)]
    cases += [
        report_case("m = 1, d = 10: 9 payload bytes", wide, 10, Tape("wide").context(10, 1.0), 0.9),
        report_case("every coin a tie", wide, 2, Tape("wide").context(10, 1.0), 0.9, "all"),
        report_case("first and last coin tie", plain[7], 10, x3, 0.8, {0: -1, 62: 1}),
        report_case("zero vector, every coin a tie at 2^31", plain[2], 1, [0.0, 0.0, 0.0], 1.0, "all"),
        report_case("d = 1", mechanism(1, [stage(bits=15, flip="1/9")]), 5, [0.77], 0.123),
        report_case("payload without padding", mechanism(5, [stage(bits=3)]), 1, Tape("full").context(5, 1.0), 0.5),
        report_case("counts of 12 bits", mechanism(1, [stage(bits=2100, flip="1/9")]), 1, [0.97], 1.0),
        report_case("pure noise after NaN", plain[2], 1, [0.1, math.nan, 0.2], 0.5),
        report_case("pure noise after a wrong dimension", plain[2], 1, [0.1], 0.5),
        report_case("clipped norm and reward", plain[3], 1, [3.0, 1.0, -2.0], 4.0)]
    words, bad_words = codebook_reports()
    cases += words
    for name, mech, data, error in bad_reports(growing, plain, wide) + bad_words:
        assert unpack_report(mech, data) == error, name
        cases.append({"name": name, "mechanism": mech, "report": data.hex(), "error": error})
    return cases


def bad_reports(growing, plain, wide):
    ident = Tape("bad reports").take(16)
    base = pack_report(wide, 4, ident, [j % 2 for j in range(65)])
    two = lambda counts: pack_report(plain[2], 1, ident, counts)
    edit = lambda data, at, byte: data[:at] + bytes([byte]) + data[at + 1:]
    numbered = lambda number: base[:9] + struct.pack(">I", number) + base[13:]
    last = base[-1]
    many = lambda number: pack_report(growing, number, ident, [1] * 9)
    relabel = lambda data, number: data[:9] + struct.pack(">I", number) + data[13:]
    five = pack_report(plain[5], 1, ident, [5, 4, 3, 2, 1, 0, 5, 5, 7])
    return [("empty", wide, b"", "short"), ("one byte", wide, base[:1], "short"),
            ("prefix cut", wide, base[:5], "short"),
            ("round cut", wide, base[:11], "short"), ("id cut", wide, base[:28], "short"),
            ("no payload", wide, base[:29], "short"),
            ("last byte missing", wide, base[:-1], "short"),
            ("cut and another version", wide, b"\2" + base[1:20], "short"),
            ("version 0", wide, edit(base, 0, 0), "version"), ("version 2", wide, edit(base, 0, 2), "version"),
            ("another version and task", wide, edit(edit(base, 0, 9), 1, base[1] ^ 1), "version"),
            ("first byte of the prefix", wide, edit(base, 1, base[1] ^ 128), "task"),
            ("last byte of the prefix", wide, edit(base, 8, base[8] ^ 1), "task"),
            ("another task and no such round", wide, edit(numbered(0), 4, base[4] ^ 1), "task"),
            ("round 0", wide, numbered(0), "round"), ("round after the last", wide, numbered(11), "round"),
            ("round 2^32-1", wide, numbered(U32), "round"),
            ("no such round and no payload", wide, numbered(11)[:29], "round"),
            ("one byte more", wide, base + b"\0", "long"),
            ("payload of a later round", growing, relabel(many(5), 2), "long"),
            ("payload of an earlier round", growing, relabel(many(2), 5), "short"),
            ("first count above m", plain[2], two([3] + [0] * 8), "count"),
            ("last count above m", plain[2], two([0] * 8 + [3]), "count"),
            ("count 7 with m = 5", plain[5], five, "count"),
            ("count and padding", plain[2], edit(two([0] * 8 + [3]), 31, 0x83), "count"),
            ("lowest padding bit", wide, edit(base, 37, last | 2), "padding"),
            ("highest padding bit", wide, edit(base, 37, last | 128), "padding"),
            ("padding after counts of two bits", plain[2], edit(two([2] * 9), 31, 0x06), "padding")]


# ---- Batch sums, statistics and model ----------------------------------------------------------------------------

def simulate(seed, mech, rounds):
    """Batch sums of made-up users: random contexts, Bernoulli rewards that are linear in x, coins."""
    tape, d, L = Tape(seed), mech["dimension"], mech["context_bound"]
    theta, out = tape.context(d, 0.5), []
    for number in range(1, rounds + 1):
        s, sums = stage_of(mech, number), [0] * size_d(d)
        for _ in range(s["size"]):
            x = tape.context(d, L)
            mean = 0.5 + sum_in_order([a * b for a, b in zip(x, theta)]) / L
            v, _ = coordinates(d, L, x, 1.0 if tape.unit() < mean else 0.0)
            for j, row in enumerate(thresholds(v, s["flip"], s["bits"])):
                sums[j] += sum(tape.u32() < t for t in row)
        out.append(batch(mech, number, sums))
    return out


def simulate_words(seed, mech, rounds):
    """Sums as a codebook round has them: words picked blindly, and the mean that contexts of norm L along the first axis add."""
    tape, d, out = Tape(seed), mech["dimension"], []
    for number in range(1, rounds + 1):
        s = stage_of(mech, number)
        if s["encoding"] == "bits":
            sums = [s["size"] * s["bits"] // 2 + tape.u32() % 31 - 15 for _ in range(size_d(d))]
        else:
            words, gain = Words(tape.take(16), size_d(d) + 1), word_moments(s["words"], s["chosen"], s["outside"])[0]
            sums = [sum(words.entry(i, j) for i in range(s["size"])) for j in range(size_d(d))]
            for i in range(d):  # every axis, the first one most, with rewards of 1/2
                share, diagonal = Fraction(4 if i == 0 else 1, d + 3), d + (i + 1) * (i + 2) // 2 - 1
                sums[i] += int(STEPS * gain * s["size"] * exact_root(s["moment_weight"]) * share.numerator / (4 * share.denominator))
                sums[diagonal] += int(STEPS * gain * s["size"] * exact_root(256 - s["moment_weight"]) * share.numerator / share.denominator)
        out.append(batch(mech, number, sums))
    return out


def exact_root(weight):
    """sqrt(weight/256), rounded down to 1/2^20."""
    return Fraction(math.isqrt(weight * 2**32), 2**20)


def batch(mech, number, sums):
    previous = None if number == 1 else hashlib.sha256(f"the release before {number}".encode()).hexdigest()
    return {"mechanism": mechanism_hash(mech), "round": number, "size": stage_of(mech, number)["size"],
            "previous": previous, "sums": [str(a) for a in sums]}


MODES = {"proven": {"mode": "proven"}, "calibrated": {"mode": "calibrated", "exploration": 0.2},
         "paper": {"mode": "paper", "ridge": 1.5}}


def learner(mode, growth=None, S=1.0, sigma=0.5, delta=0.05):
    update = {"rule": "determinant", "growth": growth} if growth else {"rule": "every-batch"}
    return {"parameter_bound": S, "reward_noise": sigma, "failure_probability": delta,
            "confidence": MODES[mode], "update": update}


def model_case(name, mech, learn, sums):
    assert not mechanism_errors(mech)
    assert not any(sums_error(mech, number, release) for number, release in enumerate(sums, 1))
    models, diagnostics = replay(mech, learn, sums)
    return {"name": name, "mechanism": mech, "learner": learn, "sums": sums, "models": models,
            "diagnostics": diagnostics}


def model_cases():
    grow = [stage(1, 100, 1, "1/2"), stage(2, 250, 2, "3/5"), stage(1, 700, 3, "7/10"), stage(1, 1500, 4, "37/50")]
    cases, dims = [], iter([1, 2, 3, 5, 2, 3, 5, 1, 3, 5, 1, 2])
    for mode in MODES:
        for name, stages, rounds in (("fixed", [stage(20, 300, 1, "3/10")], 6), ("growing", grow, 5)):
            for growth in (1.0, None):
                d = next(dims)
                bound, S = ((1.0, 1.0), (2.5, 0.75), (0.3, 3.0))[len(cases) % 3]
                mech = mechanism(d, stages, bound)
                title = f"{mode}, {name} schedule, {'determinant' if growth else 'every-batch'}, d = {d}"
                cases.append(model_case(title, mech, learner(mode, growth, S),
                                        simulate(f"models/{len(cases)}", mech, rounds)))
    low = mechanism(3, [stage(5, 1000, 2, "1/5")], 1.5)
    noise = Tape("models/low")
    sums = [batch(low, j, [900 + noise.u32() % 200 for _ in range(3)] + [noise.u32() % 150 for _ in range(6)])
            for j in (1, 2)]
    cases += [model_case(f"{mode}, very negative Gram: the shift is positive", low, learner(mode, S=2.0), sums)
              for mode in MODES]
    big = mechanism(2, [stage(3, 2000, 1, "9/10")], 1.0)
    sums = simulate("models/big", big, 3)
    cases += [model_case(f"{mode}, much noise, other sigma and delta", big, learner(mode, 0.1, 1.5, 0.1, 0.001), sums)
              for mode in MODES]
    cases += codebook_models()
    good = simulate("models/bad", low, 2)
    change = lambda **fields: {**copy.deepcopy(good[1]), **fields}
    first = lambda text: change(sums=[text] + good[1]["sums"][1:])
    bad = [("hash of another mechanism", "mechanism", change(mechanism=mechanism_hash(big))),
           ("round repeated", "round", change(round=1, previous=None)),
           ("round 1 with a previous release", "previous", change(round=1)),
           ("round skipped", "round", change(round=3)), ("round 0", "round", change(round=0)),
           ("size too small", "size", change(size=999)),
           ("size too large", "size", change(size=1001)),
           ("one sum missing", "length", change(sums=good[1]["sums"][:-1])),
           ("one sum more", "length", change(sums=good[1]["sums"] + ["0"])), ("no sums", "length", change(sums=[])),
           ("first sum above size*m", "range", first("2001")),
           ("last sum above size*m", "range", change(sums=good[1]["sums"][:-1] + ["2001"])),
           ("sum 2^63-1", "range", first(str(2**63 - 1))), ("sum -2^63", "range", first(str(-2**63))),
           ("sum -1", "range", first("-1")), ("no previous release", "previous", change(previous=None))]
    bad += [(f"sum {json.dumps(text)}", "integer", first(text))
            for text in (str(2**63), str(-2**63 - 1), "007", "-07", "1.0", "+1", "", " 1", "1e2", "-0", "--1")]
    bad = [(name, low, good, error, release) for name, error, release in bad]
    words = mechanism(2, [codebook(3, 40), stage(2, 40)])
    taken = simulate_words("models/bad words", words, 4)
    for name, at, total, error in [("largest", 1, 40 * CLIP, None), ("smallest", 1, -40 * CLIP, None),
                                   ("above the largest", 1, 40 * CLIP + 1, "range"), ("below the smallest", 1, -40 * CLIP - 1, "range"),
                                   ("2^63-1", 1, 2**63 - 1, "range"), ("-2^63", 1, -2**63, "range"),
                                   ("negative in a round of bits", 3, -1, "range"), ("of a codebook in a round of bits", 3, 41, "range")]:
        for place in (0, 4):
            sums = list(taken[at]["sums"])
            sums[place] = str(total)
            release = {**taken[at], "sums": sums}
            if error:
                bad.append((f"codebook, sum {place} {name}", words, taken[:at + 1], error, release))
            else:
                cases.append(model_case(f"codebook, sum {place} {name}", words, learner("calibrated"), [taken[0], release]))
    bad.append(("codebook, sum \"-0\"", words, taken[:2], "integer", {**taken[1], "sums": ["-0"] + taken[1]["sums"][1:]}))
    bad.append(("codebook, one sum more: the lift", words, taken[:2], "length", {**taken[1], "sums": taken[1]["sums"] + ["0"]}))
    for name, mech, releases, error, release in bad:
        assert sums_error(mech, len(releases), release) == error, name
        cases.append({"name": name, "mechanism": mech, "learner": learner("calibrated"),
                      "sums": releases[:-1], "sums_bad": release, "error": error})
    return cases


def codebook_models():
    growing = [codebook(2, 150, 64, 20, "3/10"), codebook(1, 300, 64, 12, "1/4", 100), codebook(1, 300, 256, 17, "41/200")]
    mixed, cases = [stage(2, 200, 2, "3/5"), codebook(3, 200, 16, 5, "1/4", 200)], []
    back = [codebook(1, 100, 2, 1, "1/3", 64), stage(1, 100, 3, "1/2"), codebook(1, 100, 7, 3, "3/7", 128)]
    half = [codebook(2, 120, 16, 4, "3/8", 128)]  # blind with probability 1/2: the proxy's removable singularity
    for name, d, stages, rounds, bound, S in [("codebook", 3, [codebook(6, 200, 256, 17, "41/200")], 3, 1.0, 1.0),
                                              ("growing codebooks", 5, growing, 4, 2.5, 0.75),
                                              ("codebook after bits", 2, mixed, 5, 0.3, 3.0),
                                              ("bits between codebooks", 1, back, 3, 1.0, 1.0),
                                              ("codebook, blind every other time", 2, half, 2, 1.0, 1.0)]:
        mech = mechanism(d, stages, bound)
        sums = simulate_words(f"models/{name}", mech, rounds)
        cases += [model_case(f"{mode}, {name}, {'determinant' if growth else 'every-batch'}, d = {d}", mech,
                             learner(mode, growth, S), sums)
                  for mode, growth in (("proven", None), ("calibrated", 0.3))]
    return cases


# ---- Feature maps ------------------------------------------------------------------------------------------------

def number_field(name, low=0, high=100):
    return {"name": name, "kind": "number", "min": low, "max": high}


def category(name, *values):
    return {"name": name, "kind": "category", "values": list(values)}


def hashed(name, buckets=4):
    return {"name": name, "kind": "hashed", "buckets": buckets}


def feature_map(context=(), action=(), interactions=(), bias=True, bound=1.0):
    return {"context_bound": bound, "bias": bias, "context": list(context), "action": list(action),
            "interactions": list(map(list, interactions))}


def feature_cases():
    topic, plan = category("topic", "news", "sport"), category("plan", "free", "paid")
    age, city = number_field("age"), hashed("city")
    page = feature_map([age, plan, city], [topic], [("age", "topic")])
    full = feature_map([age, plan, city], [topic, hashed("author", 3), number_field("length", -1.5, 2.5)],
                       [("plan", "topic"), ("city", "author"), ("age", "length"), ("city", "topic")], bound=2.5)
    flags = feature_map([number_field("on", 0, 1), category("flag", "false", "true"), hashed("tag", 7)],
                        bias=False, bound=0.3)
    user, item = {"age": 30, "plan": "paid", "city": "Lyon"}, {"topic": "sport", "author": "Zoë", "length": 0.7}
    sport, news, late = {"topic": "sport"}, {"topic": "news"}, number_field("y", 2, 3)
    good = [("the example of the page", page, user, sport), ("other action", page, user, news),
            ("number at min", page, {**user, "age": 0}, sport),
            ("number at max", page, {**user, "age": 100.0}, sport),
            ("clipped above", page, {**user, "age": 130}, sport),
            ("clipped below", page, {**user, "age": -1e300}, sport),
            ("unknown category", page, {**user, "plan": "gold"}, sport),
            ("unknown category in an interaction", page, user, {"topic": "arts"}),
            ("missing number", page, {"plan": "free", "city": "Oslo"}, news),
            ("everything missing", page, {}, {}), ("text for a number", page, {**user, "age": "30"}, sport),
            ("the text NaN for a number", page, {**user, "age": "NaN"}, sport),
            ("number for a category", page, {**user, "plan": 1}, sport),
            ("number for a hashed field", page, {**user, "city": 3.5}, sport),
            ("empty text for a hashed field", page, {**user, "city": ""}, sport),
            ("hash of accents", page, {**user, "city": "Zürich"}, sport),
            ("hash of Chinese", page, {**user, "city": "北京"}, sport),
            ("hash outside the basic plane", page, {**user, "city": "🚲"}, sport),
            ("many interactions, L = 2.5", full, user, item),
            ("two problems", full, {**user, "age": 101}, {"topic": "sport", "author": "Zoë"}),
            ("booleans true", flags, {"on": True, "flag": True, "tag": True}, {}),
            ("booleans false", flags, {"on": False, "flag": False, "tag": False}, {}),
            ("texts true and false", flags, {"on": 0.25, "flag": "true", "tag": "false"}, {}),
            ("boolean that is no category", page, {**user, "plan": True}, sport),
            ("boolean that is clipped", feature_map([late]), {"y": True}, {}),
            ("bias alone", feature_map(bound=0.7), {}, {}),
            ("action alone", feature_map([], [topic], bias=False), {}, news),
            ("one bucket", feature_map([hashed("a", 1)], bias=False), {"a": "b"}, {}),
            ("1000 buckets", feature_map([hashed("a", 1000)], bias=False), {"a": "b"}, {}),
            ("hashed name outside ASCII", feature_map([hashed("ville", 5), hashed("été", 5)]),
             {"ville": "x", "été": "x"}, {}),
            ("interaction of negative entries",
             feature_map([number_field("a", -3, 0.1)], [number_field("b", 1, 7)], [("a", "b")], False),
             {"a": -2.9}, {"b": 1.5}),
            ("number with a narrow range", feature_map([number_field("a", 0.1, 0.3)]), {"a": 0.2}, {})]
    cases = []
    for name, fmap, context, action in good:
        assert map_error(fmap) is None, name
        x, problems = features(fmap, context, action)
        assert sum_in_order([a * a for a in x]) <= fmap["context_bound"] ** 2 * (1 + 1e-12), name
        cases.append({"name": name, "map": fmap, "context": context, "action": action, "x": x, "problems": problems})
    unknown = "unknown interaction field"
    bad = [("name twice in the context", "duplicate name", feature_map([age, hashed("age")])),
           ("name twice in the action", "duplicate name", feature_map([], [topic, topic])),
           ("interaction without the context field", unknown, feature_map([age], [topic], [("plan", "topic")])),
           ("interaction without the action field", unknown, feature_map([age], [topic], [("age", "length")])),
           ("interaction the wrong way round", unknown, feature_map([age], [topic], [("topic", "age")])),
           ("interaction of two context fields", unknown, feature_map([age, plan], [topic], [("age", "plan")])),
           ("0 buckets", "buckets", feature_map([hashed("a", 0)])),
           ("1001 buckets", "buckets", feature_map([], [hashed("a", 1001)])),
           ("min = max", "range", feature_map([number_field("a", 1, 1)])),
           ("min > max", "range", feature_map([], [number_field("a", 1, -1)])),
           ("no values", "values", feature_map([category("a")])),
           ("value twice", "values", feature_map([], [category("a", "x", "y", "x")])),
           ("range too wide", "range", feature_map([number_field("a", -1e308, 1e308)])),
           ("1001 entries", "size", feature_map([hashed("a", 1000)])),
           ("1066 entries with the products", "size", feature_map([hashed("a", 40)], [hashed("b", 25)], [("a", "b")])),
           ("nothing at all", "size", feature_map(bias=False))]
    for name, error, fmap in bad:
        assert map_error(fmap) == error, name
        cases.append({"name": name, "map": fmap, "error": error})
    return cases


# ---- Task id, signed documents, sealed reports -------------------------------------------------------------------

SHUFFLER, BANDIT, SEALING, OLD_SEALING = (Tape(f"envelope/{name}").take(32)
                                          for name in ("shuffler", "bandit", "sealing", "old sealing"))
KEYS = {"shuffler": verification_key(SHUFFLER).hex(), "bandit": verification_key(BANDIT).hex()}


def a_task(mech=None, keys=None, **rest):
    return {"mechanism": mech or mechanism(2, [stage(bits=3, flip="2/5")]), **rest, "keys": KEYS if keys is None else keys}


def task_cases():
    swapped, policy = {"shuffler": KEYS["bandit"], "bandit": KEYS["shuffler"]}, {"policy": {"smallest_batch": 100}}
    good = [("task", a_task()), ("other mechanism", a_task(mechanism(2, grace=1))), ("keys swapped", a_task(keys=swapped)),
            ("one key for both roles", a_task(keys={**KEYS, "bandit": KEYS["shuffler"]})),
            ("learner and policy are not in the id", a_task(learner=learner("paper", 2.0), **policy)),
            ("several stages", a_task(mechanism(10, [stage(2), stage(3, 500, 4, "7/9")], 2.5, 3, 1e-9, 7, 0.5)))]
    key = lambda text: a_task(keys={**KEYS, "bandit": text})
    bad = [("key of upper-case digits", "key", key(KEYS["bandit"].upper())), ("short key", "key", key(KEYS["bandit"][:-1])),
           ("long key", "key", key(KEYS["bandit"] + "0")), ("key with a space", "key", key(" " + KEYS["bandit"][1:])),
           ("empty key", "key", key("")), ("no keys", "missing field", {"mechanism": mechanism()}),
           ("one key", "missing field", a_task(keys={"shuffler": KEYS["shuffler"]})),
           ("three keys", "unknown field", a_task(keys={**KEYS, "relay": KEYS["bandit"]})),
           ("unknown field in the task", "unknown field", a_task(id="0")),
           ("no mechanism", "missing field", {"keys": KEYS}),
           ("a batch below the policy's", "size", a_task(policy={"smallest_batch": 101}))]
    for name, error, task in bad:
        assert task_error(task) == error, name
    assert not any(task_error(task) for _, task in good)
    assert len({task_id(task) for _, task in good}) == len(good) - 1  # one has the first one's id
    return ([{"name": f"task: {name}", "kind": "task", "task": task, "id": task_id(task)} for name, task in good]
            + [{"name": f"task: {name}", "kind": "task", "task": task, "error": error} for name, error, task in bad])


def documents(task):
    """A body of each kind and the secret that signs it."""
    mech, ident, law = task["mechanism"], task_id(task), stage_of(task["mechanism"], 1)
    keys = [{"id": 1, "key": sealing_key(SEALING).hex(), "state": "active"}]
    notice = {"id": ident, "task": task, "sealing_keys": keys, "model_url": None, "gateway_keys": None, "certificate": {}}
    law = {key: law[key] for key in ("size", "encoding", "bits", "flip")}
    current = {"task": ident, "round": {"number": 1, **law}, "time": None}
    sums = batch(mech, 1, [150 + j for j in range(size_d(mech["dimension"]))])
    model = {"mechanism": mechanism_hash(mech), "version": "1", "round": 1, "theta": [0.25, -0.5],
             "width_factor": [0.5, 0.125, 0.25], "confidence_width": 3.25}
    return {"notice": (SHUFFLER, notice), "round": (SHUFFLER, current), "release": (SHUFFLER, sums), "model": (BANDIT, model)}


def signature_case(name, key, document, task, body, text):
    error = signature_error(key, document, task, body, text)
    case = {"name": f"signature: {name}", "kind": "signature", "document": document, "task": task, "key": key.hex(),
            "body": body.hex(), "signature": text}
    return {**case, "error": error} if error else case


def signature_cases():
    task, other, cases = task_id(a_task()), task_id(a_task(mechanism(2, grace=1))), []
    for document, (secret, content) in documents(a_task()).items():
        body = json.dumps(content).encode()
        made = signature_case(document, verification_key(secret), document, task, body, sign(secret, document, task, body).hex())
        cases.append({**made, "secret": secret.hex()})
        cases += [signature_case(f"{document} passed off as {kind}", verification_key(secret), kind, task, body, made["signature"])
                  for kind in ("notice", "round", "release", "model") if kind != document]
    key, body = verification_key(SHUFFLER), b"any bytes, not only JSON: \xff\0"
    cases.append({**signature_case("empty body", key, "notice", task, b"", sign(SHUFFLER, "notice", task, b"").hex()),
                  "secret": SHUFFLER.hex()})
    signature = sign(SHUFFLER, "round", task, body)
    cases.append({**signature_case("body that is no text", key, "round", task, body, signature.hex()), "secret": SHUFFLER.hex()})
    flip = lambda data, bit: (int.from_bytes(data, "little") ^ 1 << bit).to_bytes(len(data), "little")
    text, larger = signature.hex(), int.from_bytes(signature[32:], "little") + ORDER
    neutral = (1).to_bytes(32, "little")
    bad = [("another task", key, other, body, text), ("another key", verification_key(BANDIT), task, body, text),
           ("first bit of the body", key, task, flip(body, 0), text), ("one byte more in the body", key, task, body + b"\0", text),
           ("one byte less in the body", key, task, body[:-1], text), ("a space in the body", key, task, b" " + body, text),
           ("a byte moved from the task to the body", key, "00" + task[:-2], bytes.fromhex(task[-2:]) + body, text),
           ("bit of R", key, task, body, flip(signature, 77).hex()), ("bit of S", key, task, body, flip(signature, 256).hex()),
           ("S plus the group's order", key, task, body, (signature[:32] + larger.to_bytes(32, "little")).hex()),
           ("all zero", key, task, body, "0" * 128),
           ("R of small order", key, task, body, sign_with_neutral_r(SHUFFLER, "round", task, body).hex()),
           ("key and R of small order", neutral, task, body, (neutral + bytes(32)).hex()),
           ("upper-case digits", key, task, body, text.upper()), ("127 digits", key, task, body, text[:-1]),
           ("126 digits", key, task, body, text[:-2]), ("130 digits", key, task, body, text + "00"),
           ("empty text", key, task, body, ""), ("space in front", key, task, body, " " + text),
           ("no hex digit", key, task, body, "g" + text[1:]), ("0x in front", key, task, body, "0x" + text[2:])]
    cases += [signature_case(name, key, "round", *rest) for name, key, *rest in bad]
    assert sum("error" not in case for case in cases) == 6
    return cases


def rfc_9180():
    """The first message of RFC 9180, A.2.1."""
    public, ephemeral, info = (bytes.fromhex(text) for text in (
        "4310ee97d88cc1f088a5576c77ab0cf5c3ac797f3d95139c6c84b5429c59662a",
        "f4ec9b33b792c372c1d2c2063507b684ef925b8c75a42dbcbf57d63ccd381600", "4f6465206f6e2061204772656369616e2055726e"))
    cipher, nonce = hpke(diffie_hellman(ephemeral, public), sealing_key(ephemeral), public, info)
    assert cipher.encrypt(nonce, b"Beauty is truth, truth beauty", b"Count-0").hex() == (
        "1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db21993c62ce81883d2dd1b51a28")


def sealed_case(name, mech, task, data, keys, parts=None):
    opened = unseal(mech, task, keys, data)
    case = {"name": f"sealed: {name}", "kind": "sealed", "mechanism": mech, "task": task, "sealed": data.hex(),
            "keys": [{"id": number, "secret": secret.hex(), "key": sealing_key(secret).hex()} for number, secret in keys.items()]}
    if isinstance(opened, str):
        return {**case, "error": opened}
    return {**case, **parts, "report": opened.hex()}


def sealed_cases():
    rfc_9180()
    keys, cases = {1: SEALING, 0: OLD_SEALING}, []
    several = mechanism(3, [stage(2, 300), stage(9, 900, 7, "4/5")], 2.0, 1)
    task = a_task()
    for name, owner, number, round_number in [("first round", task, 1, 1), ("last round", task, 1, 10),
                                              ("the older key", task, 0, 4), ("larger report", a_task(several), 1, 11)]:
        mech, tape = owner["mechanism"], Tape(f"sealed/{name}")
        ident, ephemeral, m = tape.take(16), tape.take(32), stage_of(mech, round_number)["bits"]
        report = pack_report(mech, round_number, ident, [tape.u32() % (m + 1) for _ in range(size_d(mech["dimension"]))])
        data = seal(task_id(owner), sealing_key(keys[number]), number, round_number, ident, report, ephemeral)
        parts = {"key": number, "round": round_number, "id": ident.hex(), "ephemeral": ephemeral.hex()}
        cases.append(sealed_case(name, mech, task_id(owner), data, keys, parts))
    return cases + [sealed_case(name, task["mechanism"], ident, data, keys) for name, ident, data in bad_sealed(task, keys)]


def bad_sealed(task, keys):
    mech, ident, tape = task["mechanism"], task_id(task), Tape("bad sealed")
    name, ephemeral, public = tape.take(16), tape.take(32), sealing_key(SEALING)
    report = pack_report(mech, 2, name, [1] * 5)
    make = lambda number=1, round_number=2, name=name, inner=report: seal(
        ident, public, number, round_number, name, inner, ephemeral)
    base = make()
    edit = lambda at, byte: base[:at] + bytes([byte]) + base[at + 1:]
    swap = lambda at: edit(at, base[at] ^ 1)
    cipher, nonce = hpke(bytes(32), bytes(32), public, sealing_info(ident))
    zero = base[:22] + bytes(32) + cipher.encrypt(nonce, report, base[:22])
    other_name = bytes([name[0] ^ 1]) + name[1:]
    return [("empty", ident, b""), ("69 bytes", ident, base[:69]), ("header alone", ident, base[:22]),
            ("short and another version", ident, b"\2" + base[1:50]), ("version 0", ident, edit(0, 0)),
            ("version 2", ident, edit(0, 2)), ("version 2 and a key that is not there", ident, b"\2\7" + base[2:]),
            ("a key that is not there", ident, edit(1, 2)), ("sealed for a key that is not there", ident, make(9)),
            ("number of another key", ident, edit(1, 0)), ("sealed with the number of another key", ident, make(0)),
            ("another round", ident, swap(5)), ("another id", ident, swap(21)),
            ("bit of the encapsulated key", ident, swap(22)), ("highest bit of the encapsulated key", ident, edit(53, base[53] ^ 128)),
            ("encapsulated key of small order", ident, zero), ("bit of the sealed report", ident, swap(54)),
            ("bit of the tag", ident, swap(len(base) - 1)), ("last byte missing", ident, base[:-1]),
            ("one byte more", ident, base + b"\0"), ("70 bytes", ident, base[:70]),
            ("another task", task_id(a_task(mechanism(2, grace=1))), base),
            ("another round inside", ident, make(round_number=3)), ("another id inside", ident, make(name=other_name)),
            ("no report inside", ident, make(inner=b"")), ("a cut report inside", ident, make(inner=report[:-1])),
            ("a report of another mechanism inside", ident, make(inner=pack_report(mechanism(2), 2, name, [1] * 5)))]


def envelope_cases():
    return task_cases() + signature_cases() + sealed_cases()


# ---- Tokens of devices ---------------------------------------------------------------------------------------

def device_token_case(name, secret, serial, **other):
    tag = hmac.new(secret, b"incrowd device token v1" + serial, "sha256").hexdigest()
    token = f"incrowd-device-{serial.hex()}-{tag}"
    return {"name": name, "secret": secret.hex(), "serial": serial.hex(), "token": token} | other


def device_token_cases():
    secret, serial = (hashlib.sha256(text).digest() for text in (b"issuing secret", b"serial"))
    good = device_token_case("a token", secret, serial[:16])
    cases = [good, device_token_case("zeros", bytes(32), bytes(16)), device_token_case("ones", b"\xff" * 32, b"\xff" * 16)]
    bad = lambda name, token, secret=secret: cases.append(
        {"name": name, "secret": secret.hex(), "serial": good["serial"], "token": token, "error": "token"})
    tag = good["token"].split("-")[3]
    bad("another secret", good["token"], serial)
    bad("another serial", good["token"].replace(good["serial"], serial[16:].hex()))
    bad("a changed tag", good["token"][:-1] + ("0" if tag[-1] != "0" else "1"))
    bad("half a tag", good["token"][:-32])
    bad("no tag", good["token"][:-65])
    bad("no label", "incrowd-device-" + good["serial"] + "-" + hmac.new(secret, serial[:16], "sha256").hexdigest())
    bad("another role", good["token"].replace("device", "bandit"))
    bad("the shared token's form", "incrowd-device-" + tag)
    bad("more behind it", good["token"] + "0")
    bad("no text", "")
    return cases


# ---- Files -------------------------------------------------------------------------------------------------------

FILES = {
    "mechanism.json": (mechanism_cases, "Mechanisms with their hash; with 'error', the violated row of the table."),
    "thresholds.json": (threshold_cases, "Coin thresholds T of a context and a reward; entries may be the strings "
                                         "NaN, Infinity, -Infinity."),
    "words.json": (word_cases, "The table of thresholds, words of seeds, single entries, and the normal variables behind them, by 'kind'."),
    "reports.json": (report_cases, "Reports made from a tape of random bytes; with 'error', bytes a decoder refuses."),
    "models.json": (model_cases, "Models and diagnostics after each batch; with 'sums_bad', batch sums to refuse after "
                                 "'sums'."),
    "features.json": (feature_cases, "Feature maps applied to a context and an action; with 'error', maps to refuse."),
    "envelope.json": (envelope_cases, "Tasks with their id, signed documents and sealed reports, by 'kind'; with 'error', what "
                                      "a receiver refuses."),
    "device_tokens.json": (device_token_cases, "Tokens of single devices, made with an issuing secret; with 'error', tokens to refuse."),
}


def main():
    import layouts  # which uses the helpers of this file
    import secrets_file
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    folder, check, differ = pathlib.Path(__file__).parent / "v1", len(sys.argv) > 1, False
    folder.mkdir(exist_ok=True)
    for name, (make, description) in {**FILES, **layouts.FILES, **secrets_file.FILES}.items():
        cases = make()
        assert len({case["name"] for case in cases}) == len(cases), name
        content = {"description": description, "cases": cases}
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        path, data = folder / name, text.encode()
        if check and not (path.exists() and path.read_bytes() == data):
            print(f"{path.name} differs", file=sys.stderr)
            differ = True
        elif not check:
            path.write_bytes(data)
        bad = sum("error" in case for case in cases)
        print(f"{name}: {len(cases) - bad} good, {bad} must fail")
    sys.exit(differ)


if __name__ == "__main__":
    main()
