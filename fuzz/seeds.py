"""Writes the first inputs of every fuzz target, made from the golden vectors: python seeds.py FOLDER"""
import hashlib
import json
import pathlib
import struct
import sys

VECTORS = pathlib.Path(__file__).parent.parent / "vectors" / "v1"


def cases(name):
    return json.loads((VECTORS / f"{name}.json").read_text())["cases"]


def text(value):
    return json.dumps(value, ensure_ascii=False).encode()


def as_toml(task):
    """TOML of tables, lists of tables, and plain values, which TOML writes as JSON does."""
    lines = []

    def table(path, value):
        tables = lambda item: isinstance(item, dict) or isinstance(item, list) and item and isinstance(item[0], dict)
        nested = [(key, item) for key, item in value.items() if tables(item)]
        lines.extend(f"{key} = {json.dumps(item)}" for key, item in value.items() if not tables(item))
        for key, item in nested:
            for entry in item if isinstance(item, list) else [item]:
                lines.append(f"[[{path}{key}]]" if isinstance(item, list) else f"[{path}{key}]")
                table(f"{path}{key}.", entry)

    table("", task)
    return "\n".join(lines).encode()


def of_reports():
    mechanisms = []
    for case in cases("reports"):
        if case["mechanism"] not in mechanisms:
            mechanisms.append(case["mechanism"])
        at, report = mechanisms.index(case["mechanism"]), bytes.fromhex(case["report"])
        if len(report) < 300:
            yield "report", bytes([at]) + report
            yield "report", bytes([at | 128]) + report
            yield "bulk", (struct.pack(">I", len(report)) + report) * (1 + at % 3)
        if len(report) < 64:
            # Put right, again, changed, late: what batch.rs calls how and which.
            steps = b"".join(bytes([how, at]) + report[13:40] for how in (1, 2, 5, 17 * 3, 9))
            yield "batch", bytes([at | 0x50]) + bytes([0, len(report)]) + report + steps
            yield "batch", bytes([at | 0xe0]) + steps * 3


def of_tasks():
    sampled = {"selection": {"rule": "sampled", "scale": 0.5}, "smallest_batch": 1, "plain_reports": True}
    policies = [sampled, {"selection": {"rule": "ucb"}}]
    learners = [case["learner"] for case in cases("models")]
    tasks = [case["task"] for case in cases("envelope") if case["kind"] == "task"]
    tasks += [{**tasks[0], "learner": learner, "policy": policy} for learner in learners[:12:3] for policy in policies]
    mechanisms = [case["mechanism"] for case in cases("mechanism")]
    tasks += [{"mechanism": mechanism} for mechanism in mechanisms[::3]]
    for task in tasks:
        yield "task_json", text(task)
        yield "task_toml", as_toml(task)
    for mechanism in mechanisms[::4]:
        yield "task_json", text(mechanism)


def of_documents():
    kinds = ["notice", "round", "release", "model"]
    targets = dict(zip(kinds, ("notice", "round_notice", "sums", "model")))
    for case in cases("envelope"):
        if case["kind"] == "signature":
            kind, body = kinds.index(case["document"]), bytes.fromhex(case["body"])
            yield "signature", bytes([2 * kind]) + case["signature"].encode()
            if case.get("error") != "text" and len(body) < 400:
                yield "signature", bytes([2 * kind + 1]) + bytes.fromhex(case["key"] + case["signature"]) + body
            if "secret" in case and body.startswith(b"{"):
                yield targets[case["document"]], body
                yield targets[case["document"]], body.replace(b'"round": {', b'"round": null, "was": {')
        if case["kind"] == "sealed":
            yield "sealed", b"\0" + bytes.fromhex(case["sealed"])
            yield "sealed", b"\1" + bytes.fromhex(case["sealed"])[:60]
    yield "round_notice", text({"task": cases("envelope")[0]["id"], "round": None})
    law = {"encoding": "codebook", "words": 16, "chosen": 5, "outside": "1/4", "moment_weight": 128}
    yield "round_notice", text({"task": cases("envelope")[0]["id"], "round": {"number": 1, "size": 100, **law}, "time": None})
    task = next(case["task"] for case in cases("envelope") if case["kind"] == "task")
    stage = {"rounds": 10, "size": 100, **law}
    yield "task_json", text({**task, "mechanism": {**task["mechanism"], "schedule": [stage]}})
    yield "task_toml", as_toml({**task, "mechanism": {**task["mechanism"], "schedule": [stage, *task["mechanism"]["schedule"]]}})
    for case in cases("models"):
        yield "sums", text(case["sums"][0])
        yield "sums", text(case.get("sums_bad", case["sums"][-1]))
        for model in case.get("models", [])[:2]:
            if model:
                yield "model", text(model)


def log_entry(kind, number, before, count, most=3):
    """An entry of the shuffler's log: kind 0 is a snapshot, 1 a delta, 2 ids; with its length in front. Sums have up to `most` per report."""
    if kind == 2:
        entry = b"\1" + bytes(range(16)) * count
    else:
        sums = [count * j * most // 3 % (most * count + 1) for j in range(5)] if number < 11 else []
        width = max(sums, default=0).bit_length()
        packed = sum(value << width * j for j, value in enumerate(sums))
        packed = packed.to_bytes((len(sums) * width + 7) // 8, "little")
        entry = struct.pack(">BIIIB", 1, before, count, len(sums), width) + packed
    return struct.pack(">BBH", kind, number, len(entry)) + entry


def of_memories():
    release = next(case for case in cases("envelope") if case["name"] == "signature: release")
    mechanism = json.loads(bytes.fromhex(release["body"]))["mechanism"]
    for number, models, log_det in ((0, 0, None), (1, 1, 9.5), (9, 3, 20.25), (10, 10, -1e3), (2, 0, None)):
        yield "statistics", text({"mechanism": mechanism, "round": number, "moment": [12.5, -3.75],
                                  "gram": [80.25, 1e-3, 64.5], "models": models, "published_log_det": log_det})
    for last, reports in ((0, 0), (3, 0), (10, 1), (2**32 - 1, 2**32 - 1)):
        yield "participation", text({"last_round": last, "reports": reports})
    whole = log_entry(0, 2, 0, 40) + log_entry(2, 1, 0, 3) + log_entry(2, 2, 0, 37)
    yield "snapshot", whole
    yield "snapshot", whole + log_entry(1, 2, 40, 20) + log_entry(2, 2, 0, 20)
    yield "snapshot", log_entry(1, 1, 0, 1) + log_entry(1, 1, 1, 1) + log_entry(0, 1, 0, 2)
    yield "snapshot", log_entry(0, 10, 0, 99) + log_entry(0, 11, 0, 0)
    yield "snapshot", log_entry(0, 1, 0, 100)
    # The task with codebook rounds: the first kind is 129 more. A word is up to 272 above the least one.
    words = next(case["mechanism"] for case in cases("models") if case["name"].startswith("codebook, sum"))
    rest = log_entry(1, 2, 20, 19, 272) + log_entry(2, 2, 0, 39)
    for entries in (log_entry(0, 2, 0, 20, 272) + rest, log_entry(0, 1, 0, 39, 272), log_entry(1, 1, 0, 3, 270) + rest,
                    log_entry(0, 4, 0, 30, 1) + log_entry(1, 4, 30, 5, 1), log_entry(0, 1, 0, 1, 273)):
        yield "snapshot", bytes([entries[0] + 129]) + entries[1:]
    name = next(case["sums"][0]["mechanism"] for case in cases("models") if case["mechanism"] == words)
    for number, models, log_det in ((0, 0, None), (1, 1, 9.5), (3, 2, 5.0), (5, 5, 1.0)):
        yield "statistics", text({"mechanism": name, "round": number, "moment": [-12.5, 3.75], "gram": [80.25, -1e-3, 64.5],
                                  "models": models, "published_log_det": log_det})
    for case in cases("features"):
        parts = [case["map"], case.get("context", {}), case.get("action", {})]
        if len(text(parts[0])) < 1000:
            yield "features", b"\0".join(map(text, parts))


def of_layouts():
    for case in cases("layouts"):
        if case["kind"] in ("task", "model", "mechanism") and len(text(case[case["kind"]])) < 2000:
            yield {"model": "model"}.get(case["kind"], "task_json"), text(case[case["kind"]])
            if case["kind"] == "task":
                yield "task_toml", as_toml(case["task"])
    for case in cases("layout_models")[::3]:
        models = [model for model in (case["start"], *case["models"]) if model]
        for model in models[:1] + models[-1:]:
            yield "model", text(model)
        for step in [step["release"] for step in case["steps"] if "release" in step][:2]:
            yield "sums", text(step)
    # The task with slots, d = 2: 15 coordinates.
    case = cases("layout_models")[0]
    name, start = case["steps"][0]["release"]["mechanism"], {"round": 0, "actions": ["0", "1", "2"]}
    for number, models, later in ((0, 0, []), (0, 1, []), (3, 4, [{"round": 2, "actions": ["0", None, "2"]}]), (6, 7, [])):
        yield "statistics", text({"mechanism": name, "round": number, "sums": [3.5 * j for j in range(15)], "models": models,
                                  "published_log_det": 9.5 if number else None, "assignments": [start, *later]})
    fields = [{"name": "age", "kind": "number", "min": 0, "max": 100}]
    slots = {"context_bound": 1.0, "model": "per-action", "actions": ["a", "b"], "spare_slots": 1, "bias": True, "context": fields}
    both = {**slots, "model": "hybrid", "scale": 0.75, "action": [{"name": "price", "kind": "number", "min": 0, "max": 9}]}
    for fmap in (slots, both, {"scale": 1.0, "bias": True, "context": fields}):
        yield "features", b"\0".join(map(text, (fmap, {"age": 30}, {"price": 2})))


def names(value):
    if isinstance(value, dict):
        yield from value
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from names(item)


def words(texts):
    """What libFuzzer may insert: names of fields with a value, and literals."""
    known = {name for data in texts for name in names(json.loads(data)) if name.isidentifier()}
    out = {f'"{name}": 1, ' for name in known} | {f"\n{name} = 1\n" for name in known}
    out |= {"null", "true", "-0.0", "1e308", "5e-324", "nan", "-inf", "4294967295", "4294967296", '"18446744073709551615"'}
    escape = lambda word: "".join(f"\\x{byte:02x}" for byte in word.encode())
    return "".join(f'"{escape(word)}"\n' for word in sorted(out))


def main():
    folder, texts = pathlib.Path(sys.argv[1]), []
    for make in (of_reports, of_tasks, of_documents, of_memories, of_layouts):
        for target, data in make():
            (folder / target).mkdir(parents=True, exist_ok=True)
            (folder / target / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
            texts += [part for part in data.split(b"\0") if data.startswith(b"{")]
    (folder / "dictionary").write_text(words(texts))


main()
