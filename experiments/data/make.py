"""Makes the data files of this folder. Needs only Python and pip: python3 experiments/data/make.py [--check]

With --check nothing is written; the exit status is 1 if a file differs from what would be written.
"""

import csv
import hashlib
import io
import pathlib
import random
import subprocess
import sys
import tempfile
import zipfile

FOLDER = pathlib.Path(__file__).parent
PACKAGE = "palmerpenguins==0.1.6"
# Of the table inside the package.
SHA256 = "f204db2c753b0937caac3cb35258562c14f073e4bbc76be24b4c51ce22767a93"
FEATURES = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
LABEL = "species"
SPECIES = ["Adelie", "Chinstrap", "Gentoo"]

EVENTS = 5000
SEED = 20210615
# Probability of a reward if the action is the penguin's own species, and if not.
RIGHT, WRONG = 0.8, 0.1


def original():
    """The rows of the package's table, as dictionaries of text."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*command, "--dest", folder, PACKAGE], check=True)
        (wheel,) = pathlib.Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            table = archive.read("palmerpenguins/data/penguins.csv")
    found = hashlib.sha256(table).hexdigest()
    if found != SHA256:
        sys.exit(f"penguins.csv of {PACKAGE} has SHA-256 {found}, expected {SHA256}")
    return list(csv.DictReader(io.StringIO(table.decode("utf-8"))))


def complete(rows):
    """Label and features of the rows that have all of them, otherwise untouched."""
    columns = [LABEL, *FEATURES]
    return [[row[column] for column in columns] for row in rows if "NA" not in [row[column] for column in columns]]


def logging_policy(mass):
    """Probabilities of the actions: half for a guess from the body mass, a quarter for each of the others."""
    guess = 0 if mass < 3700 else 1 if mass < 4500 else 2
    return [0.5 if action == guess else 0.25 for action in range(len(SPECIES))]


def logged(rows):
    """Simulated events: a penguin drawn with replacement, an action of the logging policy, a reward."""
    generator = random.Random(SEED)
    for _ in range(EVENTS):
        species, *features = rows[int(generator.random() * len(rows))]
        probabilities = logging_policy(float(features[-1]))
        draw = generator.random()
        action = 0 if draw < probabilities[0] else 1 if draw < probabilities[0] + probabilities[1] else 2
        chance = RIGHT if SPECIES[action] == species else WRONG
        reward = 1 if generator.random() < chance else 0
        yield [action, reward, probabilities[action], *features]


def text(header, rows):
    target = io.StringIO()
    csv.writer(target, lineterminator="\n").writerows([header, *rows])
    return target.getvalue()


def main():
    rows = complete(original())
    files = {
        "penguins.csv": text([LABEL, *FEATURES], rows),
        "penguins-logged.csv": text(["action", "reward", "pscore", *FEATURES], logged(rows)),
    }
    differ = []
    for name, content in files.items():
        path = FOLDER / name
        if "--check" in sys.argv[1:]:
            if not path.exists() or path.read_text(encoding="utf-8") != content:
                differ.append(name)
        else:
            path.write_text(content, encoding="utf-8", newline="\n")
    if differ:
        sys.exit(f"not what make.py writes: {', '.join(differ)}")


if __name__ == "__main__":
    main()
