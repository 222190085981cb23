#!/usr/bin/env python3
"""Writes two skewed synthetic logs (evaluate.csv, evaluate.dsjson) and what policies earn on them by IPS, SNIPS and DR (evaluate.json).

    python3 -m venv .venv && .venv/bin/pip install -r vectors/requirements.txt && .venv/bin/python crates/lab/tests/reference/evaluate.py

Independent of the Rust code: the formulas of docs/evaluation.md and docs/formats.md, with 40 digits, from the text of the logs. With --check it
writes nothing and fails when a file differs.
"""

import csv
import io
import json
import pathlib
import random
import sys

import mpmath as mp

mp.mp.dps = 40
HERE = pathlib.Path(__file__).resolve().parent
NUMBERS_PER_UNIT = 1000


def thousandths(rng, low, high):
    """A number with three digits; only rng.random(), which is the same in every version of Python."""
    return low + int(rng.random() * (high - low + 1))


def show(value):
    return f"{value / NUMBERS_PER_UNIT:.3f}"


def draw(rng, probabilities):
    """An index by probabilities in thousandths."""
    left = int(rng.random() * NUMBERS_PER_UNIT)
    for index, probability in enumerate(probabilities):
        if left < probability:
            return index
        left -= probability
    raise AssertionError("probabilities do not add up")


def skewed(preferences):
    """Probabilities in thousandths, proportional to the preferences, none below 20."""
    total = sum(preferences)
    rest = [max(20, NUMBERS_PER_UNIT * preference // total) for preference in preferences[1:]]
    return [NUMBERS_PER_UNIT - sum(rest)] + rest


# The logs.

def csv_log():
    rng = random.Random(7)
    rows = io.StringIO()
    out = csv.writer(rows, lineterminator="\n")
    out.writerow(["action", "reward", "pscore", "x1", "x2", "city", "a:price", "b:price", "c:price", "d:price"])
    for _ in range(240):
        x1, x2 = thousandths(rng, -1000, 1000), thousandths(rng, 0, 5000)
        city = ["north", "south", "west", ""][int(rng.random() * 4)]
        prices = [thousandths(rng, 500, 1500 + 500 * arm) for arm in range(4)]
        probabilities = skewed([12 if x1 > 0 else 2, 3, 1 if city == "west" else 4])
        chosen = draw(rng, probabilities)
        base = [300 + x1 // 4, 500 - x2 // 20, 400 + (200 if city == "north" else 0)][chosen]
        reward = base - prices[chosen] // 10 + thousandths(rng, -300, 300)
        missing_x2 = rng.random() < 0.05
        out.writerow(["abc"[chosen], show(reward), show(probabilities[chosen]), show(x1), "" if missing_x2 else show(x2), city,
                      *map(show, prices)])
    return rows.getvalue()


def dsjson_log():
    rng = random.Random(8)
    topics = {"sport": 6, "news": 3, "music": 1, "film": 2}
    lines = []
    for number in range(200):
        age, pro = thousandths(rng, 18000, 80000), rng.random() < 0.5
        offered = [topic for topic in topics if topic == "news" or rng.random() < 0.8]
        probabilities = skewed([topics[topic] * (3 if pro and topic == "music" else 1) for topic in offered])
        if len(offered) > 1 and rng.random() < 0.2:  # The last one cannot be chosen here.
            probabilities = [probabilities[0] + probabilities[-1], *probabilities[1:-1], 0]
        chosen = draw(rng, probabilities)
        length = [thousandths(rng, 100, 900) for _ in offered]
        cost = -(200 + (300 if offered[chosen] == "music" else 0) + length[chosen] // 5 + thousandths(rng, -200, 200))
        order = [chosen] + [arm for arm in range(len(offered)) if arm != chosen]
        record = {
            "_label_cost": cost / NUMBERS_PER_UNIT, "_label_probability": probabilities[chosen] / NUMBERS_PER_UNIT,
            "_label_Action": chosen + 1, "_labelIndex": chosen,
            "Timestamp": "2026-01-02T03:04:05.0000000Z", "Version": "1", "EventId": f"event-{number}",
            "a": [arm + 1 for arm in order],
            "c": {"User": [{"age": age / NUMBERS_PER_UNIT}, {"plan": "pro" if pro else "free"}], "weekend": rng.random() < 0.3,
                  "_multi": [{"_tag": topic, "Item": {"length": size / NUMBERS_PER_UNIT}} for topic, size in zip(offered, length)]},
            "p": [probabilities[arm] / NUMBERS_PER_UNIT for arm in order],
        }
        if rng.random() < 0.3:
            record["pdrop"] = 0.5
        lines.append(json.dumps(record, separators=(",", ":")))
    return "\n".join(lines) + "\n"


# Events as the estimators see them: a dict with reward, propensity, chosen, expansion, arms [(name, own fields)], context, known probabilities.

def csv_events(text):
    events = []
    names = ["a", "b", "c", "d"]
    for row in csv.DictReader(io.StringIO(text)):
        value = lambda name: mp.mpf(row[name]) if row[name] else None
        events.append({
            "reward": value("reward"), "propensity": value("pscore"), "chosen": names.index(row["action"]), "expansion": mp.mpf(1),
            "context": {"x1": value("x1"), "x2": value("x2"), "city": row["city"] or None},
            "arms": [(name, {"price": value(f"{name}:price")}) for name in names],
            "probabilities": None,
        })
    return events


def dsjson_events(text):
    events = []
    number = lambda value: mp.mpf(repr(value))
    for line in text.splitlines():
        record = json.loads(line)
        user = {key: value for part in record["c"]["User"] for key, value in part.items()}
        probabilities = [mp.mpf(0)] * len(record["c"]["_multi"])
        for action, probability in zip(record["a"], record["p"]):
            probabilities[action - 1] = number(probability)
        events.append({
            "reward": -number(record["_label_cost"]), "propensity": number(record["_label_probability"]), "chosen": record["_label_Action"] - 1,
            "expansion": 1 / (1 - number(record.get("pdrop", 0))),
            "context": {"age": number(user["age"]), "plan": user["plan"], "weekend": mp.mpf(int(record["c"]["weekend"]))},
            "arms": [(arm["_tag"], {"length": number(arm["Item"]["length"])}) for arm in record["c"]["_multi"]],
            "probabilities": probabilities,
        })
    return events


# The reward model.

def codes(dicts):
    """For each field: mean and deviation of its numbers, and its texts."""
    fields = {}
    for values in dicts:
        for name, value in values.items():
            fields.setdefault(name, []).append(value)
    result = []
    for name, values in fields.items():
        numbers = [value for value in values if isinstance(value, mp.mpf)]
        mean = mp.fsum(numbers) / len(numbers) if numbers else None
        deviation = mp.sqrt(mp.fsum((value - mean) ** 2 for value in numbers) / len(numbers)) if numbers else None
        result.append((name, mean, deviation, sorted({value for value in values if isinstance(value, str)})))
    return result


def encode(fields, values):
    z = []
    for name, mean, deviation, texts in fields:
        value = values.get(name)
        if mean is not None:
            z.append((value - mean) / deviation if isinstance(value, mp.mpf) else mp.mpf(0))
        z += [mp.mpf(int(value == text)) for text in texts]
    return z


class RewardModel:
    def __init__(self, events, folds, ridge):
        self.events, self.folds = events, folds
        self.shared = codes(event["context"] for event in events)
        self.own = codes(own for event in events for _, own in event["arms"])
        names = {name for event in events for name, _ in event["arms"]}
        chosen = [event["arms"][event["chosen"]][0] for event in events]
        columns = [self.columns(event, event["chosen"]) for event in events]
        self.base, self.solved = [], []
        for fold in range(folds):
            others = [i for i in range(len(events)) if self.fold(i) != fold]
            base = mp.fsum(events[i]["reward"] for i in others) / len(others)
            self.base.append(base)
            self.solved.append({name: self.regress([(columns[i], events[i]["reward"] - base) for i in others if chosen[i] == name], ridge)
                                for name in names})

    def fold(self, index):
        return index * self.folds // len(self.events)

    def columns(self, event, arm):
        return [mp.mpf(1)] + encode(self.shared, event["context"]) + encode(self.own, event["arms"][arm][1])

    @staticmethod
    def regress(pairs, ridge):
        if not pairs:
            return None
        size = len(pairs[0][0])
        left = mp.matrix(size, size)
        right = mp.matrix(size, 1)
        for i in range(size):
            right[i] = mp.fsum(z[i] * y for z, y in pairs)
            for j in range(size):
                left[i, j] = mp.fsum(z[i] * z[j] for z, _ in pairs) + (ridge if i == j else 0)
        return list(mp.lu_solve(left, right))

    def predict(self, index, arm):
        event, fold = self.events[index], self.fold(index)
        solution = self.solved[fold][event["arms"][arm][0]]
        return self.base[fold] + (mp.fdot(solution, self.columns(event, arm)) if solution else 0)


# Policies: probabilities of an event's arms; all 0 if what they want is not offered.

def uniform(event):
    return [mp.mpf(1) / len(event["arms"])] * len(event["arms"])


def logged(event):
    return event["probabilities"]


def always(action):
    def policy(event):
        named = [int(action == f"#{arm + 1}" or action == name) for arm, (name, _) in enumerate(event["arms"])]
        return [mp.mpf(one) for one in named]
    return policy


FEATURES = {
    "context_bound": 1.0, "bias": True,
    "context": [{"name": "x1", "kind": "number", "min": -1.0, "max": 1.0}, {"name": "city", "kind": "category", "values": ["north", "south", "west"]}],
    "action": [{"name": "action", "kind": "category", "values": ["a", "b", "c", "d"]}, {"name": "price", "kind": "number", "min": 0.5, "max": 3.0}],
    "interactions": [["x1", "action"]],
}


def published():
    rng = random.Random(37)
    size = 1 + 1 + 3 + 4 + 1 + 4
    return {
        "mechanism": "00" * 32, "version": "3", "round": 5,
        "theta": [thousandths(rng, -1000, 1000) / NUMBERS_PER_UNIT for _ in range(size)],
        "width_factor": [(thousandths(rng, 200, 900) if i == j else thousandths(rng, -200, 200)) / NUMBERS_PER_UNIT
                         for i in range(size) for j in range(i + 1)],
        "confidence_width": 0.75,
    }


def features(event, arm):
    """docs/formats.md, feature maps."""
    name, own = event["arms"][arm]
    blocks = [[mp.mpf(1)]]
    scaled = lambda value, low, high: [2 * (min(max(value, low), high) - low) / (high - low) - 1]
    x1 = scaled(event["context"]["x1"], mp.mpf(-1), mp.mpf(1))
    action = [mp.mpf(int(name == value)) for value in "abcd"]
    blocks += [x1, [mp.mpf(int(event["context"]["city"] == value)) for value in ("north", "south", "west")]]
    blocks += [action, scaled(own["price"], mp.mpf("0.5"), mp.mpf(3)), [x1[0] * entry for entry in action]]
    return [entry / mp.sqrt(len(blocks)) for block in blocks for entry in block]


def best(model, greedy):
    theta = [mp.mpf(value) for value in model["theta"]]

    def score(x):
        mean, squares, at = mp.fdot(theta, x), mp.mpf(0), 0
        for i in range(len(x)):
            squares += mp.fdot([mp.mpf(w) for w in model["width_factor"][at:at + i + 1]], x[:i + 1]) ** 2
            at += i + 1
        return mean if greedy else mean + model["confidence_width"] * mp.sqrt(squares)

    def policy(event):
        scores = [score(features(event, arm)) for arm in range(len(event["arms"]))]
        return [mp.mpf(int(value == max(scores))) for value in scores]
    return policy


# The estimators.

def ratio(pairs):
    """Sum of u y over the sum of u, its linearised standard error, and the 95 % interval."""
    n, total = len(pairs), mp.fsum(u for u, _ in pairs)
    value = mp.fsum(u * y for u, y in pairs) / total
    error = mp.sqrt(mp.mpf(n) / (n - 1) * mp.fsum((u * (y - value)) ** 2 for u, y in pairs)) / total
    quantile = mp.sqrt(2) * mp.erfinv(mp.mpf("0.95"))
    return {"value": plain(value), "standard_error": plain(error), "interval": [plain(value - quantile * error), plain(value + quantile * error)]}


def plain(x):
    return float(mp.nstr(x, 17))


def evaluate(events, policy, model, clip):
    seen = {event["arms"][event["chosen"]][0] for event in events}
    rows, uncovered = [], mp.mpf(0)
    for index, event in enumerate(events):
        shares = policy(event)
        weight = mp.mpf(1) if policy is logged else shares[event["chosen"]] / event["propensity"]
        cut = min(weight, clip) if clip else weight
        direct = mp.fsum(share * model.predict(index, arm) for arm, share in enumerate(shares)) if any(shares) else model.base[model.fold(index)]
        robust = direct + cut * (event["reward"] - model.predict(index, event["chosen"]))
        covered = [p > 0 for p in event["probabilities"]] if event["probabilities"] else [name in seen for name, _ in event["arms"]]
        outside = mp.fsum(share for share, there in zip(shares, covered) if not there) if any(shares) else mp.mpf(1)
        uncovered += event["expansion"] * outside
        rows.append((event["expansion"], weight, cut, event["reward"], robust))
    total = mp.fsum(row[0] for row in rows)
    sizes = [v * cut for v, _, cut, _, _ in rows]
    return {
        "ips": ratio([(v, cut * r) for v, _, cut, r, _ in rows]),
        "snips": ratio([(v * cut, r) for v, _, cut, r, _ in rows]),
        "dr": ratio([(v, robust) for v, _, _, _, robust in rows]),
        "mean_weight": ratio([(v, weight) for v, weight, _, _, _ in rows]),
        "clipped_share": plain(mp.mpf(sum(cut < weight for _, weight, cut, _, _ in rows)) / len(rows)),
        "effective_sample_size": plain(mp.fsum(sizes) ** 2 / mp.fsum(size**2 for size in sizes)),
        "uncovered_share": plain(uncovered / total),
    }


def expected(logs):
    model = published()
    policies = {"uniform": uniform, "logged": logged, "model": best(model, False), "greedy": best(model, True)}
    cases = []
    for file, read, names in [("evaluate.csv", csv_events, ["uniform", "always:b", "model", "greedy"]),
                              ("evaluate.dsjson", dsjson_events, ["uniform", "logged", "always:#1", "always:music"])]:
        events = read(logs[file])
        for folds, ridge, clip in [(2, 1.0, None), (5, 0.25, 3.0)]:
            rewards = RewardModel(events, folds, mp.mpf(ridge))
            for name in names:
                policy = policies.get(name) or always(name.removeprefix("always:"))
                case = {"log": file, "policy": name, "folds": folds, "ridge": ridge, "clip": clip}
                cases.append({**case, "expected": evaluate(events, policy, rewards, clip)})
    return {"features": FEATURES, "model": model, "cases": cases}


def main():
    files = {"evaluate.csv": csv_log(), "evaluate.dsjson": dsjson_log()}
    files["evaluate.json"] = json.dumps(expected(files), indent=1) + "\n"
    for name, text in files.items():
        path = HERE / name
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path} is not what this script computes")


if __name__ == "__main__":
    main()
