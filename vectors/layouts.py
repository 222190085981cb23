"""Cases of models with slots (docs/formats.md, Layouts): mechanisms, tasks, reports, model documents and what the bandit makes of sums.

The order of coordinates is a list of labels here, and estimates are made of dense matrices over all parameters, shared ones first.
"""
import math
from fractions import Fraction

from generate import batch, category, codebook, encode, learner, make_tape, mechanism, number_field, stage
from reference import (STEPS, Tape, Words, bits_noise, block_sizes, choose_words, codebook_noise, coordinates, exact,
                       features, flip_coins, mechanism_errors, mechanism_hash, mp, mpf, pack_report, parse_fraction, pick_word, proven_noise,
                       stage_of, sum_in_order, sums_error, thresholds, total_coordinates, unpack_report, word_moments)


def per_action(d, slots, stages=None, **rest):
    return {**mechanism(d, stages, **rest), "layout": "per-action", "slots": slots}


def hybrid(d, slots, shared, stages=None, **rest):
    return {**mechanism(d, stages, **rest), "layout": "hybrid", "slots": slots, "shared": shared}


# ---- Mechanisms and tasks ----------------------------------------------------------------------------------------

def mechanism_cases():
    timed = [stage(2, 50, 4, "1/3", 60000), codebook(1, 50, window=60000)]
    good = {"per-action": per_action(3, 4), "per-action, one slot": per_action(5, 1), "per-action, one feature": per_action(1, 2),
            "per-action, most slots": per_action(2, 10000), "per-action, most coordinates": per_action(13, 4822),
            "per-action, most bits": per_action(2, 100, [stage(bits=4095)]),
            "hybrid": hybrid(5, 3, 2), "hybrid, one of each": hybrid(2, 1, 1), "hybrid, most parameters": hybrid(10, 99, 1, [stage(bits=2)]),
            "hybrid, other sizes with the same product": hybrid(5, 2, 3),
            "per-action, codebook": per_action(3, 4, [codebook()]), "per-action, by time": per_action(2, 3, timed, opens="1800000000000"),
            "hybrid, by time": hybrid(3, 2, 2, timed, opens="0")}
    assert total_coordinates(good["per-action, most coordinates"]) == 501488
    cases = [{"name": name, "kind": "mechanism", "mechanism": mech, "hash": mechanism_hash(mech),
              "coordinates": total_coordinates(mech)} for name, mech in good.items()]
    assert len({case["hash"] for case in cases}) == len(cases)
    both, plain = hybrid(5, 3, 2), mechanism(5)
    without = lambda mech, name: {key: value for key, value in mech.items() if key != name}
    bad = [("shared with slots", "layout", {**plain, "slots": 3}), ("shared with shared", "layout", {**plain, "shared": 2}),
           ("per-action without slots", "layout", without(per_action(3, 4), "slots")),
           ("per-action with shared", "layout", {**per_action(3, 4), "shared": 1}),
           ("hybrid without slots", "layout", without(both, "slots")), ("hybrid without shared", "layout", without(both, "shared")),
           ("no slots", "slots", per_action(3, 0)), ("10001 slots", "slots", per_action(1, 10001)),
           ("hybrid, no slots", "slots", hybrid(5, 0, 2)), ("no shared feature", "shared", hybrid(5, 3, 0)),
           ("all features shared", "shared", hybrid(5, 3, 5)), ("more shared features than there are", "shared", hybrid(5, 3, 6)),
           ("hybrid of 1001 parameters", "parameters", hybrid(11, 100, 1)),
           ("too many coordinates", "coordinates", per_action(13, 4823)), ("too many coordinates of two slots", "coordinates", per_action(900, 2)),
           ("m*D too big", "bits", per_action(3, 1000, [stage(bits=1865)])),
           ("names in upper case", "unknown variant", {**per_action(3, 4), "layout": "Per-Action"})]
    assert not mechanism_errors(per_action(3, 1000, [stage(bits=1864)]))
    assert not any(map(mechanism_errors, good.values()))
    for name, error, mech in bad:
        assert mechanism_errors(mech) == {error}, (name, mechanism_errors(mech))
        cases.append({"name": f"bad: {name}", "kind": "mechanism", "mechanism": mech, "error": error})
    return cases


def task_error(task):
    """The word that the refusal of a task must have, or None; mechanism and the rest of the learner are taken as valid."""
    slots, learn = task["mechanism"].get("slots", 0), task["learner"]
    actions, prior, discount = task.get("actions", []), task.get("prior"), learn.get("discount", 1)
    named = [name for name in actions if name]
    if not 0 < discount <= 1 or discount < 1 and (learn["confidence"]["mode"] != "calibrated" or learn["update"]["rule"] == "determinant"):
        return "discount"
    if learn["confidence"]["mode"] == "paper" and slots:
        return "layout"
    if len(actions) > slots:
        return "actions has"
    if len(set(named)) < len(named):
        return "one slot only"
    if any(len(name.encode()) > 200 for name in named):
        return "name"
    if prior is None:
        return None
    kinds = labels(task["mechanism"])
    square = lambda label: len(label) == 2 and label[0] == label[1]
    if not 0 < prior["people"] <= 1e12:
        return "people"
    if not all(-1 <= value <= 1 for value in prior["values"]):
        return "value"
    if len(prior["values"]) != len(kinds):
        return "entries"
    if any(square(label) and value < 0 for label, value in zip(kinds, prior["values"])):
        return "value"
    return "proven" if learn["confidence"]["mode"] == "proven" else None


def task_cases():
    slots, both = per_action(2, 3), hybrid(3, 2, 1)
    calibrated = learner("calibrated")
    zeros = [0.0] * 15
    make = lambda mech=slots, learn=calibrated, **rest: {"mechanism": mech, "learner": learn, **rest}
    prior = lambda people=5.0, values=zeros: {"people": people, "values": values}
    at = lambda place, value: prior(values=zeros[:place] + [value] + zeros[place + 1:])
    forget = lambda mode, growth=None: {**learner(mode, growth), "discount": 0.9}
    good = [("all slots named", make(actions=["a", "b", "c"]), ["a", "b", "c"]), ("a spare slot", make(actions=["a", "b"]), ["a", "b", None]),
            ("a hole", make(actions=["", "b"]), [None, "b", None]), ("no list", make(), ["0", "1", "2"]),
            ("an empty list", make(actions=[]), ["0", "1", "2"]), ("all empty", make(actions=[""]), [None, None, None]),
            ("name of 200 bytes", make(actions=["ü" * 100]), ["ü" * 100, None, None]),
            ("no slots", make(mechanism(2)), []), ("hybrid", make(both, actions=["x", "y"]), ["x", "y"]),
            ("prior", make(prior=at(0, -1.0)), ["0", "1", "2"]), ("prior without slots", make(mechanism(4), prior=at(4, -1.0) | {"values": [0.5] * 14}), []),
            ("prior, negative product", make(prior=at(3, -0.5)), ["0", "1", "2"]), ("discount", make(learn=forget("calibrated")), ["0", "1", "2"])]
    bad = [("four names", make(actions=["a", "b", "c", "d"])), ("names without slots", make(mechanism(2), actions=["a"])),
           ("one name twice", make(actions=["a", "b", "a"])), ("name of 201 bytes", make(actions=["ü" * 100 + "u"])),
           ("prior of nobody", make(prior=prior(0.0))), ("prior of too many", make(prior=prior(1.1e12))),
           ("prior value above 1", make(prior=at(5, 1.1))), ("prior value below -1", make(prior=at(0, -1.1))),
           ("prior too short", make(prior=prior(values=zeros[:-1]))), ("prior too long", make(prior=prior(values=zeros + [0.0]))),
           ("prior, negative square of the first slot", make(prior=at(2, -0.1))), ("prior, negative square of the last slot", make(prior=at(14, -0.1))),
           ("prior, negative square, hybrid", make(both, prior=prior(values=[0.0, -0.1] + [0.0] * 14))),
           ("prior and proven", make(learn=learner("proven"), prior=prior())), ("paper and slots", make(learn=learner("paper"))),
           ("discount and proven", make(learn=forget("proven"))), ("discount and paper", make(mechanism(2), forget("paper"))),
           ("discount and determinant", make(learn=forget("calibrated", 0.5))), ("discount 0", make(learn={**calibrated, "discount": 0.0})),
           ("discount above 1", make(learn={**calibrated, "discount": 1.01}))]
    for name, task, _ in good:
        assert task_error(task) is None, (name, task_error(task))
    cases = [{"name": f"task: {name}", "kind": "task", "task": task, "actions": actions} for name, task, actions in good]
    for name, task in bad:
        assert task_error(task), name
        cases.append({"name": f"bad task: {name}", "kind": "task", "task": task, "error": task_error(task)})
    return cases


# ---- Coordinates, coins, words -----------------------------------------------------------------------------------

def labels(mech):
    """What each coordinate of a report is about: (f,) is r times feature f, (f, g) the product of two; f is ("s", i) or (slot, i)."""
    slots, own, shared = block_sizes(mech)
    triangle = lambda features: [(f, g) for i, f in enumerate(features) for g in features[:i + 1]]
    common = [("s", i) for i in range(shared)]
    out = [(f,) for f in common] + triangle(common)
    for slot in range(slots):
        mine = [(slot, i) for i in range(own)]
        out += [(f,) for f in mine] + triangle(mine) + [(f, g) for f in common for g in mine]
    assert len(out) == total_coordinates(mech)
    return out


def arm_values(mech, slot, x, r):
    """All values of a report, and the first problem or None."""
    d, (slots, own, shared) = mech["dimension"], block_sizes(mech)
    v, problem = coordinates(d, mech["context_bound"], x, r)
    if slot >= max(slots, 1):
        return [0.0] * total_coordinates(mech), "slot"
    features = [(slot, i) for i in range(own)] + [("s", i) for i in range(shared)]
    place = {(f,): v[i] for i, f in enumerate(features)}
    for i, f in enumerate(features):
        for k, g in enumerate(features[:i + 1]):
            place[f, g] = place[g, f] = v[d + i * (i + 1) // 2 + k]
    return [place.get(label, 0.0) for label in labels(mech)], problem


def statistic(mech, v, weight):
    w = weight / 256
    scale = lambda label: math.sqrt(w) if len(label) == 1 else math.sqrt((1 if label[0] == label[1] else 2) * (1 - w))
    z = [scale(label) * value for label, value in zip(labels(mech), v)]
    square = sum_in_order([entry * entry for entry in z])
    return z + [math.sqrt(1 - square) if square < 1 else 0.0]


ARMS = [("plain", 0, [0.3, -0.5, 0.7], 0.8), ("last slot", -1, [0.3, -0.5, 0.7], 0.8), ("reward 0", 1, [0.9, 0.1, -0.2], 0.0),
        ("reward 1, full norm", -1, [0.0, 0.0, 1.0], 1.0), ("own feature alone", 0, [1.0, 0.0, 0.0], 1.0), ("zero vector", 1, [0.0] * 3, 1.0),
        ("clipped norm", 1, [3.0, 1.0, -2.0], 0.5), ("clipped reward", 0, [0.3, -0.5, 0.7], 4.0), ("NaN", -1, [0.1, math.nan, 0.2], 0.5),
        ("wrong dimension", 0, [0.1, 0.2], 0.5), ("no such slot", 99, [0.3, -0.5, 0.7], 0.8), ("no such slot, NaN", 3, [0.3, math.nan, 0.7], 0.8)]
SHAPES = {"per-action": lambda stages: per_action(3, 3, stages, bound=1.0), "hybrid": lambda stages: hybrid(3, 3, 1, stages, bound=1.0),
          "hybrid, two shared": lambda stages: hybrid(3, 3, 2, stages, bound=2.5), "one slot": lambda stages: per_action(3, 1, stages)}


def arms_of(mech):
    for name, slot, x, r in ARMS:
        slot = mech["slots"] - 1 if slot == -1 else slot
        yield name, slot, [xi * mech["context_bound"] for xi in x], r


def report_cases():
    cases = []
    for shape, make in SHAPES.items():
        for m, flip in ((1, "1/2"), (3, "2/5")):
            mech = make([stage(bits=m, flip=flip)])
            for name, slot, x, r in arms_of(mech):
                title = f"{shape}, m = {m}: {name}"
                v, problem = arm_values(mech, slot, x, r)
                rows = thresholds(v, flip, m)
                random = make_tape(f"layouts/{title}", rows, {})
                counts, used = flip_coins(rows, random[16:])
                assert used + 16 == len(random)
                report = pack_report(mech, 1, random[:16], counts)
                assert unpack_report(mech, report) == (1, random[:16], counts)
                assert len(report) == 29 + -(-len(v) * m.bit_length() // 8)
                cases.append({"name": title, "kind": "bits", "mechanism": mech, "slot": slot, "x": [encode(xi) for xi in x],
                              "reward": encode(r), "problem": problem, "thresholds": rows, "random": random.hex(),
                              "counts": counts, "report": report.hex()})
        for weight in (128, 200):
            mech = make([codebook(words=64, chosen=20, outside="3/10", weight=weight)])
            law = stage_of(mech, 1)
            for name, slot, x, r in list(arms_of(mech))[:None if weight == 128 else 3]:
                title = f"{shape}, codebook of weight {weight}: {name}"
                v, problem = arm_values(mech, slot, x, r)
                z, tape = statistic(mech, v, weight), Tape(f"layouts/{title}")
                ident, seed = tape.take(16), tape.take(16)
                chosen, gap = choose_words(seed, z, law)
                assert gap > 1e-6, title
                random = ident + seed + tape.take(64)
                index, used = pick_word(law, chosen, random, 32)
                report = pack_report(mech, 1, ident, (seed, index))
                assert unpack_report(mech, report) == (1, ident, (seed, index)) and len(report) == 46
                cases.append({"name": title, "kind": "codebook", "mechanism": mech, "slot": slot, "x": [encode(xi) for xi in x],
                              "reward": encode(r), "problem": problem, "statistic": z, "random": random[:used].hex(),
                              "report": report.hex()})
    assert {case["problem"] for case in cases} == {None, "slot", "dimension", "not_finite", "norm", "reward"}
    return cases


# ---- Feature maps ------------------------------------------------------------------------------------------------

def map_problem(fmap):
    """The word that the refusal of a map must have, or None; of maps that are valid without the new fields."""
    model, actions, spare = fmap.get("model", "shared"), fmap.get("actions", []), fmap.get("spare_slots", 0)
    context, action = fmap.get("bias") or fmap.get("context"), fmap.get("action") or fmap.get("interactions")
    if "scale" in fmap and not 0 < fmap["scale"] <= 1:
        return "scale"
    if len(set(actions)) < len(actions) or "" in actions:
        return "actions must be names"
    if model == "shared":
        return "actions must be left out" if actions or spare else None
    if model == "per-action" and action or model == "hybrid" and not (context and action):
        return f"{model} model"
    if not actions:
        return "actions must be given"
    return None if len(actions) + spare <= 10000 else "together"


def map_cases():
    context = [number_field("age"), category("plan", "free", "paid")]
    action, pairs = [number_field("price", 0, 10)], [["age", "price"]]
    base = {"context_bound": 2.0, "bias": True, "context": context}
    slots = {**base, "model": "per-action", "actions": ["a", "b"]}
    both = {**base, "model": "hybrid", "actions": ["a", "b"], "action": action, "interactions": pairs}
    user, item = {"age": 20, "plan": "paid"}, {"price": 9}
    good = [("per-action", slots), ("per-action, spare slots", {**slots, "spare_slots": 9998}), ("hybrid", both),
            ("hybrid without bias", {**both, "bias": False}), ("hybrid, interactions have shared weights", {**both, "spare_slots": 1}),
            ("scale", {**slots, "scale": 0.5}), ("scale that shortens", {**slots, "scale": 1.0}), ("scale, shared", {**base, "scale": 0.25}),
            ("scale, tiny L", {**both, "context_bound": 1e-200, "scale": 0.9}), ("scale, huge L", {**both, "context_bound": 1e200, "scale": 0.9}),
            ("model shared", {**base, "model": "shared"}), ("L left out", {key: value for key, value in slots.items() if key != "context_bound"})]
    bad = [("actions of a shared model", {**base, "actions": ["a"]}), ("spare slots of a shared model", {**base, "spare_slots": 1}),
           ("per-action without actions", {**slots, "actions": []}), ("spare slots alone", {**slots, "actions": [], "spare_slots": 4}),
           ("one action twice", {**slots, "actions": ["a", "b", "a"]}), ("an empty name", {**slots, "actions": ["a", ""]}),
           ("per-action with action fields", {**slots, "action": action}), ("hybrid without action fields", {**both, "action": [], "interactions": []}),
           ("hybrid without context", {**both, "bias": False, "context": [], "interactions": []}),
           ("too many slots", {**slots, "spare_slots": 9999}), ("scale 0", {**slots, "scale": 0.0}), ("scale above 1", {**slots, "scale": 1.5}),
           ("negative scale", {**base, "scale": -0.5})]
    cases = []
    for name, fmap in good:
        assert map_problem(fmap) is None, name
        full = {"context_bound": 1.0, "action": [], "interactions": [], **fmap}
        L = full["context_bound"]
        plain, problems = features({**full, "context_bound": 1.0}, user, item)
        own = full["bias"] + sum(len(field.get("values", "1")) for field in full["context"])
        sizes = {"per-action": (), "hybrid": (len(plain) - own,)}.get(full.get("model"))
        layout = None if sizes is None else [len(full["actions"]) + full.get("spare_slots", 0), *sizes]
        if "scale" in full:  # undo the scaling by the number of blocks
            blocks = full["bias"] + len(full["context"]) + len(full["action"]) + len(full["interactions"])
            raw = [mpf(entry) * mp.sqrt(blocks) for entry in plain]
            norm = mp.sqrt(mp.fsum(entry * entry for entry in raw))
            plain = [entry * min(mpf(full["scale"]), 1 / norm) for entry in raw]
        x = [float(mpf(entry) * mpf(L)) for entry in plain]
        cases.append({"name": f"map: {name}", "kind": "features", "map": fmap, "context": user, "action": item, "x": x,
                      "problems": problems, "layout": layout})
    for name, fmap in bad:
        assert map_problem(fmap), name
        cases.append({"name": f"bad map: {name}", "kind": "features", "map": fmap, "error": map_problem(fmap)})
    return cases


# ---- Model documents ---------------------------------------------------------------------------------------------

def a_slot(action, own, shared, **rest):
    factor = [1.0 if k == i else 0.25 for i in range(own) for k in range(i + 1)]
    cross = {"cross_factor": [0.125] * (own * shared)} if shared else {}
    return {"action": action, "theta": [0.5] * own, "width_factor": factor, **cross, "confidence_width": 2.0, **rest}


def a_model(own, shared, actions, **rest):
    factor = [1.0 if k == i else -0.5 for i in range(shared) for k in range(i + 1)]
    return {"mechanism": "ab" * 32, "version": "2", "round": 1, "theta": [0.25] * shared, "width_factor": factor,
            "confidence_width": 0.0, "slots": [a_slot(action, own, shared) for action in actions], **rest}


def model_error(model):
    """The word that the refusal of a model must have, or None; of a document whose fields have the right types."""
    slots, shared = model.get("slots", []), len(model["theta"])
    own = len(slots[0]["theta"]) if slots else 0
    diagonal = lambda part: [part["width_factor"][i * (i + 3) // 2] for i in range(len(part["theta"]))]
    names = [slot["action"] for slot in slots if slot["action"] is not None]
    if int(model["version"]) == 0:
        return "version"
    if not 1 <= shared + own <= 1000:
        return "dimension"
    for part in [model, *slots]:
        n = len(part["theta"])
        if part is not model and (n != own or n == 0 or len(part.get("cross_factor", [])) != own * shared):
            return "entries"
        if len(part["width_factor"]) != n * (n + 1) // 2:
            return "entries"
        if not all(entry > 0 for entry in diagonal(part)):
            return "positive"
        if part["confidence_width"] < 0:
            return "confidence_width"
    if len(set(names)) < len(names):
        return "one slot only"
    return None if all(1 <= len(name.encode()) <= 200 for name in names) else "name"


def model_documents():
    three = ["a", "b", None]
    good = [("per-action", a_model(2, 0, three)), ("hybrid", a_model(2, 3, three)), ("one slot", a_model(1, 0, ["a"])),
            ("all spare", a_model(1, 1, [None, None])), ("name of 200 bytes", a_model(1, 0, ["ü" * 100])),
            ("negative entries", a_model(2, 1, ["a"], theta=[-1.5])), ("an empty list of slots", a_model(0, 2, [], confidence_width=1.5))]
    def edit(change, own=2, shared=2, actions=three):
        model = a_model(own, shared, actions)
        change(model)
        return model
    def put(at, name, value):
        return lambda model: model["slots"][at].update({name: value})
    bad = [("no features at all", a_model(0, 0, [])), ("slots without features", a_model(0, 2, ["a"])), ("1001 features", {**a_model(1, 0, ["a"]), "theta": [0.0] * 1000}),
           ("slots of different lengths", edit(lambda model: model["slots"].__setitem__(1, a_slot("b", 3, 2)))),
           ("theta of a slot too short", edit(put(2, "theta", [0.5]))), ("factor of a slot too short", edit(put(0, "width_factor", [1.0, 0.0]))),
           ("factor of a slot too long", edit(put(2, "width_factor", [1.0, 0.0, 1.0, 0.0]))),
           ("cross factor too short", edit(put(1, "cross_factor", [0.0] * 3))), ("cross factor too long", edit(put(0, "cross_factor", [0.0] * 5))),
           ("no cross factor", edit(lambda model: model["slots"][1].pop("cross_factor"))),
           ("cross factor without shared features", edit(put(0, "cross_factor", [0.0]), shared=0)),
           ("zero on the diagonal of a slot", edit(put(1, "width_factor", [1.0, 0.0, 0.0]))),
           ("negative diagonal of a spare slot", edit(put(2, "width_factor", [-1.0, 0.0, 1.0]))),
           ("zero on the diagonal of the shared part", edit(lambda model: model.update(width_factor=[0.0, 0.0, 1.0]))),
           ("negative width of a slot", edit(put(1, "confidence_width", -0.5))), ("one action twice", edit(lambda model: None, actions=["a", "b", "a"])),
           ("an empty name", edit(lambda model: None, actions=["a", ""])), ("name of 201 bytes", edit(lambda model: None, actions=["ü" * 100 + "u"])),
           ("version 0", edit(lambda model: model.update(version="0")))]
    for name, model in good:
        assert model_error(model) is None, (name, model_error(model))
    cases = [{"name": f"model: {name}", "kind": "model", "model": model} for name, model in good]
    for name, model in bad:
        assert model_error(model), name
        cases.append({"name": f"bad model: {name}", "kind": "model", "model": model, "error": model_error(model)})
    unread = [("no action", lambda model: model["slots"][0].pop("action"), "missing field"),
              ("no theta in a slot", lambda model: model["slots"][0].pop("theta"), "missing field"),
              ("no width in a slot", lambda model: model["slots"][0].pop("confidence_width"), "missing field"),
              ("unknown field in a slot", lambda model: model["slots"][0].update(name="a"), "unknown field")]
    return cases + [{"name": f"bad model: {name}", "kind": "model", "model": edit(change), "error": error} for name, change, error in unread]


# ---- From sums to models -----------------------------------------------------------------------------------------

class Learned:
    """What a bandit knows: sums in natural units by label, and the noise of every estimate."""

    def __init__(self, task):
        self.mech, self.learn, self.task = task["mechanism"], task["learner"], task
        self.slots, self.own, self.shared = block_sizes(self.mech)
        self.labels, self.L = labels(self.mech), mpf(self.mech["context_bound"])
        self.sums = dict.fromkeys(self.labels, mpf(0))
        self.actions, self.j, self.version, self.last = task_actions(task), 0, 0, None
        self.since, self.noise, self.used = [0] * self.slots, [no_noise() for _ in range(self.slots)], [a is not None for a in self.actions]
        self.joint_noise = no_noise()
        prior = task.get("prior")
        self.prior = None if prior is None else {
            label: mpf(prior["people"]) * mpf(value) * self.L**len(label) for label, value in zip(self.labels, prior["values"])}

    def absorb(self, release):
        s, g = stage_of(self.mech, release["round"]), mpf(self.learn.get("discount", 1))
        assert sums_error(self.mech, self.j + 1, release) is None
        for label, total in zip(self.labels, map(int, release["sums"])):
            if s["encoding"] == "bits":
                estimate = exact((Fraction(2 * total, s["bits"]) - s["size"]) / (1 - Fraction(*parse_fraction(s["flip"]))))
            else:
                w = mpf(s["moment_weight"]) / 256
                scale = mp.sqrt(w if len(label) == 1 else (1 - w) * (1 if label[0] == label[1] else 2))
                estimate = total / (STEPS * word_moments(s["words"], s["chosen"], s["outside"])[0] * scale)
            self.sums[label] = g * self.sums[label] + self.L**len(label) * estimate
        dimension = self.slots * self.own + self.shared if self.shared else self.own
        made = bits_noise(s) if s["encoding"] == "bits" else codebook_noise(s, dimension, len(self.labels))
        for noise in [*self.noise, self.joint_noise]:
            for name, value in made.items():
                forgotten = g if name.endswith("bias") else g**2
                noise[name] = forgotten * noise[name] + s["size"] * value
        self.j += 1
        update, models = self.learn["update"], self.fit()
        log_det = mp.fsum(found["log_det"] for found in models)
        if self.last is not None and update["rule"] == "determinant":
            gap = log_det - self.last - mp.log(1 + mpf(update["growth"]))
            assert abs(gap) > 1e-6, "too close to call in doubles"
            if gap < 0:
                return None
        return self.publish(models)

    def start(self):
        if self.prior is not None:
            return self.publish(self.fit())
        return self.publish(None) if self.slots else None

    def assign(self, actions):
        found = self.fit() if self.j or self.prior is not None else None
        for slot, (old, new) in enumerate(zip(self.actions, actions)):
            if old != new:
                if new is not None:
                    assert old is None
                    self.forget(slot, found if self.used[slot] else None)
                    self.used[slot] = True
                    self.noise[slot] = no_noise()
                self.since[slot] = self.j
        self.actions = list(actions)
        return self.publish(self.fit() if found else None)

    def forget(self, slot, found):
        mine = [(slot, i) for i in range(self.own)]
        if found:
            lowest = min(mp.eigsy(mp.matrix([[self.sum(f, g) for g in mine] for f in mine]), eigvals_only=True))
        self.forget_in(self.sums, slot, max(found[0]["lambda"], self.L**2 - lowest) if found else None)

    def forget_in(self, sums, slot, ridge):
        """Without the slot; what it says about shared features stays, as far as its own features do not explain it."""
        mine, common = [(slot, i) for i in range(self.own)], [("s", i) for i in range(self.shared)]
        if self.shared and ridge is not None:
            A = mp.matrix([[self.sum(f, g, sums) for g in mine] for f in mine])
            inverse = mp.inverse(A + ridge * mp.eye(self.own))
            B = mp.matrix([[self.sum(f, g, sums) for g in mine] for f in common])
            m = mp.matrix([sums[f,] for f in mine])
            lost, moment = B * inverse * B.T, B * inverse * m
            for i, f in enumerate(common):
                sums[f,] -= moment[i]
                for k, g in enumerate(common[:i + 1]):
                    sums[f, g] -= lost[i, k]
        for label in self.labels:
            if label[-1][0] == slot or label[0][0] == slot:
                sums[label] = mpf(0)

    def sum(self, f, g, of=None):
        of = of or self.sums
        return of.get((f, g), of.get((g, f), mpf(0)))

    def calibrated_noise(self, noise):
        """Sizes of the noise of the Gram matrix and of the moment."""
        L, q, s, K = self.L, self.own, self.shared, max(self.slots, 1)
        n, both = q + s, bool(s and self.slots)
        edge = 3 * mp.sqrt(q) + mp.sqrt(mpf(s) / K) + 2 * mp.sqrt(s) / K if both else 2 * mp.sqrt(n)
        nu = L**2 * mp.sqrt(noise["gram_variance"]) * (edge + mpf("0.9793") * mpf(n)**(-mpf(1) / 6))
        h = 1 - mpf(2) / (9 * n) + mpf("1.6449") * mp.sqrt(mpf(2) / (9 * n))
        return nu, L * mp.sqrt(noise["moment_variance"]) * mp.sqrt(n) * h**mpf("1.5")

    def pool(self):
        """The parameter that all slots have in common, with sqrt(K) times the noise of one; none without slots,
        with a prior, or where widths are proven."""
        if self.slots < 2 or self.prior is not None or self.learn["confidence"]["mode"] == "proven":
            return None
        features = [("any", i) for i in range(self.own)] + [("s", i) for i in range(self.shared)]
        each = lambda f: [(a, f[1]) for a in range(self.slots)] if f[0] == "any" else [f]
        total = lambda f, g: mp.fsum(self.sum(x, y) for x in each(f) for y in each(g))
        gram = mp.matrix([[total(f, g) for g in features] for f in features])
        moment = mp.matrix([mp.fsum(self.sums[x,] for x in each(f)) for f in features])
        nu = mp.sqrt(self.slots) * self.calibrated_noise(self.joint_noise)[0]
        lowest = min(mp.eigsy(gram, eigvals_only=True))
        lam = 2 * nu + max(mpf(0), -nu - lowest)
        return dict(zip(features, mp.lu_solve(gram + lam * mp.eye(len(features)), moment)))

    def fit(self):
        """One estimate of all parameters, or one for each slot."""
        if self.shared:
            features = [("s", i) for i in range(self.shared)] + [(a, i) for a in range(self.slots) for i in range(self.own)]
            found = [self.estimate(features, self.joint_noise, 0)]
        else:
            found = [self.estimate([(a, i) for i in range(self.own)], self.noise[a], self.since[a]) for a in range(self.slots)]
        if self.prior is not None:
            # A slot without an action is not asked.
            asked = [estimate for slot, estimate in enumerate(found) if self.shared or self.actions[slot] is not None]
            length, chance = (mp.fsum(estimate["step"][name] for estimate in asked) for name in ("length", "chance"))
            p = sum(len(estimate["step"]["features"]) for estimate in asked)
            chance *= mpf(2) * max(p - 2, 0) / p if p else 0
            share = 1 - chance / length if length > chance else mpf(0)
            for estimate in found:
                step = estimate["step"]
                for i, f in enumerate(step["features"]):
                    estimate["theta"][f] += share * step["move"][i] / step["unit"][i]
        return found

    def exists(self, f, g):
        return (f, g) in self.sums or (g, f) in self.sums

    def prior_now(self):
        """The prior's sums, and the mean square of a feature of one of its people. Slots that it does not know, and slots
        with another action than at the start, have what one of its people says about any action."""
        n, P = mpf(self.task["prior"]["people"]), self.slots * self.own + self.shared
        square = lambda label: len(label) == 2 and label[0] == label[1]
        one = mp.fsum(value for label, value in self.prior.items() if square(label)) / (n * P)
        slots_of = lambda label: {f[0] for f in label} - {"s"}
        same = lambda label, slot: tuple((slot, f[1]) if f[0] != "s" else f for f in label)
        now = dict(self.prior)
        for slot in range(self.slots):
            mine = [label for label in self.labels if slots_of(label) == {slot}]
            if self.since[slot] > 0 or not any(self.prior[label] for label in mine if square(label)):
                self.forget_in(now, slot, one)
                for label in self.labels:
                    if not slots_of(label):
                        now[label] += self.prior[label] / n
                    elif slots_of(label) == {slot}:
                        now[label] += mp.fsum(self.prior[same(label, a)] for a in range(self.slots)) / n
        return now, one

    def learnable(self, one):
        """The share of the uncertainty that the rest of the schedule can remove, as a standard deviation."""
        g, sigma, S, n = mpf(self.learn.get("discount", 1)), mpf(self.learn["reward_noise"]), mpf(self.learn["parameter_bound"]), self.task["prior"]["people"]
        reports = variance = mpf(0)
        precisions = [one * n]
        for number in range(1, sum(s["rounds"] for s in self.mech["schedule"]) + 1):
            s = stage_of(self.mech, number)
            made = bits_noise(s) if s["encoding"] == "bits" else codebook_noise(s, 1, len(self.labels))
            reports = g * reports + s["size"]
            variance = g**2 * variance + s["size"] * (made["moment_variance"] + (self.L * S)**2 * made["gram_variance"])
            gram = one * reports
            precisions.append(one * n + gram**2 / (gram + self.L**2 * variance / sigma**2))
        # What is forgotten can be learned again.
        now = precisions[0 if g < 1 else self.j]
        return mp.sqrt(max(mpf(0), 1 - now / precisions[-1]))

    def estimate(self, features, noise, since):
        learn, L = self.learn, self.L
        S, sigma, mode = mpf(learn["parameter_bound"]), mpf(learn["reward_noise"]), learn["confidence"]["mode"]
        d, both, K = len(features), bool(self.shared and self.slots), max(self.slots, 1)
        j, shares = max(self.j, 1), 1 if self.shared else K
        delta_j = mpf(learn["failure_probability"]) / (j * (j + 1)) / shares
        # Shared features are divided by the square root of the slots.
        unit = [mp.sqrt(K) if f[0] == "s" and both else mpf(1) for f in features]
        gram_of = lambda of: mp.matrix([[self.sum(f, g, of) / (unit[i] * unit[k]) for k, g in enumerate(features)] for i, f in enumerate(features)])
        moment_of = lambda of: mp.matrix([of[f,] / unit[i] for i, f in enumerate(features)])
        gram, moment = gram_of(self.sums), moment_of(self.sums)
        nothing = noise["moment_variance"] == 0
        if nothing:
            nu = eta = z = mpf(0)
        elif mode == "proven":
            nu, eta, z = proven_noise(d, L, S, delta_j, noise)
        else:
            nu, eta = self.calibrated_noise(noise)
            z = nu
        if since > 0 and self.prior is None:
            z = max(z, L**2)
        lowest = min(mp.eigsy(gram, eigvals_only=True))
        lam = nu + z + max(mpf(0), z - (lowest + nu + z))
        V = gram + lam * mp.eye(d)
        share, stretch = (1, 1) if not both else (1, mp.sqrt(K)) if mode == "proven" else (mpf(1) / K, 1)
        explore = mpf(learn["confidence"].get("exploration", 1))
        reward = lambda volume: sigma * mp.sqrt(2 * mp.log(3 / delta_j) + share * max(0, volume))
        step = None
        if self.prior is None:
            pool = self.pool()
            if pool is not None:
                centre = mp.matrix([pool[f if f[0] == "s" else ("any", f[1])] * unit[i] for i, f in enumerate(features)])
                moment = moment + lam * centre
            log_det, small, theta = mp.log(mp.det(V)), lowest + lam, mp.lu_solve(V, moment)
            pull = stretch * S * min(mp.sqrt(nu + lam), (nu + lam) / mp.sqrt(small))
            beta = (reward(log_det - d * mp.log(z)) + pull + eta / mp.sqrt(max(z, small))) * explore
        else:
            known, one = self.prior_now()
            V_0 = gram_of(known)
            V_0 += (one - min(0, min(mp.eigsy(V_0, eigvals_only=True)))) * mp.eye(d)
            theta = mp.lu_solve(V_0, moment_of(known))
            V = V_0 + V
            # The noise of every entry of m - G theta, by what it is a sum of: r f or f g, in units of the estimate.
            sm, sg = L**2 * noise["moment_variance"], L**4 * noise["gram_variance"]
            entry = lambda i, k: sg / (unit[i] * unit[k])**2 if self.exists(features[i], features[k]) else mpf(0)
            R = mp.diag([sm / unit[i]**2 + mp.fsum(entry(i, k) * theta[k]**2 for k in range(d)) for i in range(d)])
            log_det, inverse = mp.log(mp.det(V)), mp.inverse(V)
            move = inverse * (moment - gram * theta)
            trace = lambda matrix: mp.fsum(matrix[i, i] for i in range(d))
            step = {"move": move, "unit": unit, "features": features, "length": (move.T * V_0 * move)[0],
                    "chance": trace(V_0 * inverse * R * inverse) + sigma**2 * trace(V_0 * inverse)}
            beta = (reward(log_det - mp.log(mp.det(V_0))) + mp.sqrt(trace(inverse * R))) * explore * self.learnable(one)
        inverse = mp.inverse(V)
        # Back to the features as they are.
        return {"theta": {f: theta[i] / unit[i] for i, f in enumerate(features)}, "beta": beta, "log_det": log_det, "lambda": lam,
                "inverse": {(f, g): inverse[i, k] / (unit[i] * unit[k]) for i, f in enumerate(features) for k, g in enumerate(features)},
                "step": step}

    def publish(self, found):
        self.version += 1
        common = [("s", i) for i in range(self.shared)]
        if found is not None:
            self.last = mp.fsum(estimate["log_det"] for estimate in found)
        model = {"mechanism": mechanism_hash(self.mech), "version": str(self.version), "round": self.j,
                 "theta": [0.0] * self.shared, "width_factor": identity(self.shared), "confidence_width": 0.0}
        if found is not None and self.shared:
            joint = found[0]
            W = factor(mp.matrix([[joint["inverse"][f, g] for g in common] for f in common]))
            model["theta"], model["width_factor"] = [float(joint["theta"][f]) for f in common], packed(W)
            model["confidence_width"] = 0.0 if self.slots else float(joint["beta"])
        slots = []
        for a, action in enumerate(self.actions):
            mine = [(a, i) for i in range(self.own)]
            slot = {"action": action, "theta": [0.0] * self.own, "width_factor": identity(self.own), "confidence_width": 0.0}
            if self.shared:
                slot["cross_factor"] = [0.0] * (self.own * self.shared)
            if found is not None and action is not None:
                estimate = found[0 if self.shared else a]
                P = mp.matrix([[estimate["inverse"][f, g] for g in mine] for f in mine])
                if self.shared:
                    # |x|^2 = |W_a own|^2 + |C own + W shared|^2: W'C is the shared-own block, and C'C is not W_a's.
                    C = mp.inverse(W.T) * mp.matrix([[estimate["inverse"][f, g] for g in mine] for f in common])
                    P = P - C.T * C
                    slot["cross_factor"] = [float(C[i, k]) for i in range(self.shared) for k in range(self.own)]
                slot["theta"], slot["width_factor"] = [float(estimate["theta"][f]) for f in mine], packed(factor(P))
                slot["confidence_width"] = float(estimate["beta"])
            slots.append(slot)
        return {**model, "slots": slots} if self.slots else model


def factor(P):
    """W, lower triangular with a positive diagonal, with W'W = P."""
    return mp.inverse(mp.cholesky(mp.inverse(P)))


def packed(W):
    return [float(W[i, k]) for i in range(W.rows) for k in range(i + 1)]


def identity(n):
    return [float(i == k) for i in range(n) for k in range(i + 1)]


def no_noise():
    return dict.fromkeys(("moment_proxy", "gram_proxy", "moment_variance", "gram_variance", "moment_bias", "gram_bias",
                          "along", "rounding"), mpf(0))


def task_actions(task):
    slots, names = task["mechanism"].get("slots", 0), task.get("actions", [])
    return [(names[a] or None) if a < len(names) else (None if names else str(a)) for a in range(slots)]


def simulate(seed, mech, rounds):
    """Releases of made-up people who play slots at random."""
    tape, (slots, own, shared), L = Tape(seed), block_sizes(mech), mech["context_bound"]
    d, out = own + shared, []
    common = tape.context(d, 0.4)
    weights = [tape.context(own, 0.4) + common[own:] for _ in range(max(slots, 1))] if slots else [common]
    for number in range(1, rounds + 1):
        s = stage_of(mech, number)
        totals = [0] * total_coordinates(mech)
        if s["encoding"] == "codebook":
            words, gain = Words(tape.take(16), len(totals) + 1), word_moments(s["words"], s["chosen"], s["outside"])[0]
            totals = [sum(words.entry(i, k) for i in range(s["size"])) for k in range(len(totals))]
            for k, label in enumerate(labels(mech)):  # what reports along every axis add, with rewards of 1/2
                if len(label) == 1 or label[0] == label[1]:
                    totals[k] += int(STEPS * gain * s["size"] * (mpf(1) / 8 if len(label) == 1 else mpf(1) / 4) / (1 + (label[0][0] != "s") * slots))
        else:
            for _ in range(s["size"]):
                slot, x = tape.u32() % max(slots, 1), tape.context(d, L)
                mean = 0.5 + sum_in_order([a * b for a, b in zip(x, weights[slot])]) / L
                v, _ = arm_values(mech, slot, x, 1.0 if tape.unit() < mean else 0.0)
                for k, row in enumerate(thresholds(v, s["flip"], s["bits"])):
                    totals[k] += sum(tape.u32() < t for t in row)
        out.append(batch(mech, number, totals))
    return out


def learned_case(name, mech, learn, rounds, assigns=None, **rest):
    """`assigns` maps a round to the actions from there on."""
    task = {"mechanism": mech, "learner": learn, **rest}
    assert not mechanism_errors(mech) and task_error(task) is None, (name, task_error(task))
    bandit, steps, models = Learned(task), [], []
    first = bandit.start()
    for release in simulate(f"layouts/{name}", mech, rounds):
        steps.append({"release": release})
        models.append(bandit.absorb(release))
        for actions in (assigns or {}).get(release["round"], []):
            steps.append({"assign": actions})
            models.append(bandit.assign(actions))
    return {"name": name, "task": task, "start": first, "steps": steps, "models": models}


def learned_cases():
    bits = [stage(3, 120, 2, "3/10"), stage(3, 200, 3, "1/4")]
    words = [codebook(2, 80, 64, 20, "3/10", 100), stage(2, 80, 2, "3/10")]
    forget = lambda g: {**learner("calibrated"), "discount": g}
    prior = lambda mech, people=30.0: {"people": people, "values": a_prior(mech)}
    slots, both, wide = per_action(2, 3, bits, bound=2.5), hybrid(3, 2, 1, bits, bound=0.5), hybrid(4, 3, 2, bits)
    names = {"actions": ["a", "b", ""]}
    changes = {1: [["a", "b", "c"], ["a", None, "c"]], 2: [["a", "d", "c"]], 3: [["a", "d", None]]}
    cases = [learned_case("per-action, calibrated, every batch", slots, learner("calibrated"), 4),
             learned_case("per-action, calibrated, determinant", slots, learner("calibrated", 0.6), 4, **names),
             learned_case("per-action, proven", slots, learner("proven", None, 0.75), 3),
             learned_case("per-action, other bounds", per_action(1, 2, bits), learner("calibrated", None, 1.5, 0.1, 0.001), 2),
             learned_case("per-action, discount", slots, forget(0.8), 5),
             learned_case("per-action, prior", slots, learner("calibrated"), 3, prior=prior(slots)),
             learned_case("per-action, strong prior and discount", slots, forget(0.9), 3, prior=prior(slots, 1e5)),
             learned_case("per-action, other actions", slots, learner("calibrated"), 5, changes, **names),
             learned_case("per-action, other actions, discount and prior", slots, forget(0.85), 4, changes, prior=prior(slots), **names),
             learned_case("per-action, other actions, proven", slots, learner("proven"), 4, changes, **names),
             learned_case("per-action, codebook, calibrated", per_action(2, 2, words), learner("calibrated"), 4),
             learned_case("per-action, codebook, proven", per_action(2, 2, words), learner("proven"), 3),
             learned_case("per-action, codebook, discount", per_action(2, 2, words), forget(0.7), 4),
             learned_case("hybrid, calibrated, every batch", both, learner("calibrated"), 4),
             learned_case("hybrid, calibrated, determinant", wide, learner("calibrated", 0.6), 5, **names),
             learned_case("hybrid, proven", both, learner("proven", None, 0.75), 3),
             learned_case("hybrid, proven, three slots", wide, learner("proven"), 2),
             learned_case("hybrid, discount", both, forget(0.8), 5),
             learned_case("hybrid, prior", wide, learner("calibrated"), 3, prior=prior(wide)),
             learned_case("hybrid, prior and discount", both, forget(0.9), 3, prior=prior(both, 1000.0)),
             learned_case("hybrid, other actions", wide, learner("calibrated"), 4, changes, **names),
             learned_case("hybrid, other actions, discount and prior", wide, forget(0.85), 4, changes, prior=prior(wide), **names),
             learned_case("hybrid, codebook, calibrated", hybrid(3, 2, 1, words), learner("calibrated"), 4),
             learned_case("hybrid, codebook, proven", hybrid(3, 2, 1, words), learner("proven"), 3),
             learned_case("no slots, prior", mechanism(3, bits, 1.5), learner("calibrated"), 3, prior=prior(mechanism(3))),
             learned_case("no slots, prior and discount", mechanism(2, bits), forget(0.75), 4, prior=prior(mechanism(2), 0.5)),
             learned_case("no slots, discount", mechanism(2, bits), forget(0.75), 4)]
    return cases


def a_prior(mech):
    """The mean statistic of a few people in each slot."""
    tape, people = Tape("prior"), []
    for slot in range(max(mech.get("slots", 0), 1)):
        for _ in range(3):
            people.append(arm_values({**mech, "context_bound": 1.0}, slot, tape.context(mech["dimension"], 1.0), tape.unit())[0])
    return [sum_in_order(column) / len(people) for column in zip(*people)]


FILES = {
    "layouts.json": (lambda: mechanism_cases() + task_cases() + report_cases() + map_cases() + model_documents(),
                     "Mechanisms, tasks, reports, feature maps and model documents with slots, by 'kind'; with 'error', what a reader refuses."),
    "layout_models.json": (learned_cases, "Models with slots, priors and discounts: 'start' before the first release, then one or null for each step, "
                                          "a release or an assignment of actions to slots."),
}
