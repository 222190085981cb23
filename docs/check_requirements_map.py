"""Every requirement of docs/requirements-map.md has a test, and every test it names exists."""

import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
sections = re.split(r"^\*\*R(\d+)\*\*", (root / "docs/requirements-map.md").read_text(), flags=re.M)[1:]
wrong = []
numbers = [int(number) for number in sections[::2]]
if numbers[:25] != list(range(1, 26)) or numbers != sorted(set(numbers)):
    wrong.append("the map does not have R1 to R25 and what follows, in order")
for number, section in zip(sections[::2], sections[1::2]):
    named = 0
    for path, names in re.findall(r"^- `(.+?)`: (.+)$", section, flags=re.M):
        source = (root / path).read_text()
        for name in re.findall(r"`(\w+)`", names):
            named += 1
            if not re.search(rf"\bfn {name}\(", source):
                wrong.append(f"R{number}: {path} has no test {name}")
    if not named:
        wrong.append(f"R{number} has no test")
sys.exit("\n".join(wrong) or 0)
