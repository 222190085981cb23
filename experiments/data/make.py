"""Makes the data files of this folder from tables inside the packages of requirements.txt; nothing is downloaded.

    python3 experiments/data/make.py [--check]

With --check nothing is written; the exit status is 1 if a file differs from what would be written. Numbers may differ by 0.2 percent there: other processors round a classifier's last digits otherwise.
"""

import csv
import gzip
import hashlib
import importlib.util
import io
import pathlib
import random
import sys
import zipfile

import numpy
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

FOLDER = pathlib.Path(__file__).parent

# A table inside a package, and the SHA-256 of its bytes.
PENGUINS = ("palmerpenguins", "data/penguins.csv", "f204db2c753b0937caac3cb35258562c14f073e4bbc76be24b4c51ce22767a93")
DIGITS = ("sklearn", "datasets/data/digits.csv.gz", "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22")
SEGMENTS = ("river", "datasets/segment.csv.zip", "91e4402efcb6f6a4087e4bcfcd074976dd8e48819d290f45bae6bd652bd16d75")
VISITS = ("statsmodels", "datasets/randhie/randhie.csv", "9f6c87d05aef087a82cc4465310c8cd3f38327be6eafa43bd81fb98c4f3d088c")

# Public rows: the first half trains a classifier, the second half is for the prior.
TRAINED, PUBLIC = 180, 360
SPLIT_SEED = 1
# Where a file has cut columns: at so many standard deviations of the rows that train the classifier.
CUT = 3


def package_bytes(package, path, sha256):
    """A file inside an installed package, which is not imported."""
    folder = pathlib.Path(importlib.util.find_spec(package).origin).parent
    content = (folder / path).read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        sys.exit(f"{path} of {package} has SHA-256 {found}, expected {sha256}")
    return content


def text(header, rows):
    target = io.StringIO()
    csv.writer(target, lineterminator="\n").writerows([header, *rows])
    return target.getvalue()


# Penguins: measurements as they are, and simulated logging over them.

FEATURES = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
LABEL = "species"
SPECIES = ["Adelie", "Chinstrap", "Gentoo"]
EVENTS = 5000
LOGGING_SEED = 20210615
# Probability of a reward if the action is the penguin's own species, and if not.
RIGHT, WRONG = 0.8, 0.1


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
    generator = random.Random(LOGGING_SEED)
    for _ in range(EVENTS):
        species, *features = rows[int(generator.random() * len(rows))]
        probabilities = logging_policy(float(features[-1]))
        draw = generator.random()
        action = 0 if draw < probabilities[0] else 1 if draw < probabilities[0] + probabilities[1] else 2
        chance = RIGHT if SPECIES[action] == species else WRONG
        reward = 1 if generator.random() < chance else 0
        yield [action, reward, probabilities[action], *features]


def penguins():
    rows = complete(csv.DictReader(io.StringIO(package_bytes(*PENGUINS).decode("utf-8"))))
    yield "penguins.csv", text([LABEL, *FEATURES], rows)
    yield "penguins-logged.csv", text(["action", "reward", "pscore", *FEATURES], logged(rows))


# Data sets with a public part. A data set is a matrix, its labels as text, and column names.


def shuffled(matrix, labels):
    order = numpy.random.default_rng(SPLIT_SEED).permutation(len(labels))
    return matrix[order], labels[order]


def table(label, columns, matrix, labels, rows):
    """The rows of a slice as a file: four significant digits, the label last."""
    lines = ([*(f"{value:.4g}" for value in line), name] for line, name in zip(matrix[rows], labels[rows]))
    return text([*columns, label], lines)


def parts(stem, label, columns, matrix, labels, public, people):
    yield f"{stem}.csv", table(label, columns, matrix, labels, people)
    yield f"{stem}-public.csv", table(label, columns, matrix, labels, public)


def classifier(matrix, labels):
    """Logistic regression on the first half of the public rows."""
    return LogisticRegression(max_iter=5000).fit(matrix[:TRAINED], labels[:TRAINED])


def standardised(matrix):
    """By mean and variance of the first half of the public rows."""
    return StandardScaler().fit(matrix[:TRAINED]).transform(matrix)


def scores(model, matrix):
    """Columns `class:probability` and `class:logit`, and their values."""
    probability = model.predict_proba(matrix)
    inside = numpy.clip(probability, 1e-3, 1 - 1e-3)
    columns = [f"{name}:{score}" for name in model.classes_ for score in ("probability", "logit")]
    values = numpy.stack([probability, numpy.log(inside / (1 - inside))], axis=2)
    return columns, values.reshape(len(matrix), -1)


def error(name, model, matrix, labels, rows):
    print(f"{name}: the classifier is wrong on {1 - model.score(matrix[rows], labels[rows]):.3f} of the people", file=sys.stderr)


def components(count, matrix):
    """The first principal components, which are those of the first half of the public rows."""
    pca = PCA(count, svd_solver="full").fit(matrix[:TRAINED])
    return [f"p{place}" for place in range(count)], pca


def digits():
    lines = numpy.loadtxt(io.BytesIO(gzip.decompress(package_bytes(*DIGITS))), delimiter=",")
    pixels, labels = shuffled(lines[:, :-1] / 16, lines[:, -1].astype(int).astype(str))
    people = slice(PUBLIC, None)

    columns, pca = components(8, pixels)
    yield from parts("digits", "digit", columns, pca.transform(pixels), labels, slice(0, PUBLIC), people)

    model = classifier(pixels, labels)
    error("digits", model, pixels, labels, people)
    names, values = scores(model, pixels)
    yield from parts("digits-scores", "digit", names, values, labels, slice(TRAINED, PUBLIC), people)

    # What is public is shifted by one pixel to the right, people are not.
    images = numpy.pad(pixels.reshape(-1, 8, 8), ((0, 0), (0, 0), (1, 0)))[:, :, :8]
    images = images.reshape(-1, 64)
    images[people] = pixels[people]
    columns, pca = components(3, images)
    model = classifier(images, labels)
    error("digits, shifted", model, images, labels, people)
    names, values = scores(model, images)
    values = numpy.hstack([values, pca.transform(images)])
    yield from parts("digits-shifted", "digit", names + columns, values, labels, slice(TRAINED, PUBLIC), people)


def segments():
    with zipfile.ZipFile(io.BytesIO(package_bytes(*SEGMENTS))) as archive:
        (name,) = archive.namelist()
        rows = list(csv.reader(io.StringIO(archive.read(name).decode("utf-8"))))
    matrix = numpy.array([[float(value) for value in row[:-1]] for row in rows[1:]])
    matrix, labels = shuffled(matrix, numpy.array([row[-1] for row in rows[1:]]))
    people = slice(PUBLIC, None)

    scaled = standardised(matrix)
    columns, pca = components(6, scaled)
    values = pca.transform(scaled)
    yield from parts("segments", "category", columns, values, labels, slice(0, PUBLIC), people)
    values = numpy.clip(standardised(values), -CUT, CUT)
    yield from parts("segments-cut", "category", columns, values, labels, slice(0, PUBLIC), people)

    model = classifier(scaled, labels)
    error("segments", model, scaled, labels, people)
    names, values = scores(model, scaled)
    yield from parts("segments-scores", "category", names, values, labels, slice(TRAINED, PUBLIC), people)


def visits():
    rows = list(csv.reader(io.StringIO(package_bytes(*VISITS).decode("utf-8"))))
    count = [int(row[0]) for row in rows[1:]]
    labels = numpy.array(["none" if n == 0 else "few" if n <= 3 else "many" for n in count])
    matrix = numpy.array([[float(value) for value in row[1:]] for row in rows[1:]])
    matrix, labels = shuffled(matrix, labels)
    people = slice(PUBLIC, PUBLIC + 6000)

    yield from parts("visits", "visits", rows[0][1:], matrix, labels, slice(0, PUBLIC), people)
    scaled = standardised(matrix)
    model = classifier(scaled, labels)
    error("visits", model, scaled, labels, people)
    names, values = scores(model, scaled)
    yield from parts("visits-scores", "visits", names, values, labels, slice(TRAINED, PUBLIC), people)


def same(first, second):
    """Whether two files are equal, numbers up to 0.2 percent."""
    first, second = ([line.split(",") for line in content.splitlines()] for content in (first, second))
    if [len(line) for line in first] != [len(line) for line in second]:
        return False
    return all(same_field(a, b) for one, other in zip(first, second) for a, b in zip(one, other))


def same_field(first, second):
    if first == second:
        return True
    try:
        return abs(float(first) - float(second)) <= 0.002 * abs(float(first)) + 1e-6
    except ValueError:
        return False


def main():
    differ = []
    for files in (penguins(), digits(), segments(), visits()):
        for name, content in files:
            path = FOLDER / name
            if "--check" in sys.argv[1:]:
                if not path.exists() or not same(path.read_text(encoding="utf-8"), content):
                    differ.append(name)
            else:
                path.write_text(content, encoding="utf-8", newline="\n")
    if differ:
        sys.exit(f"not what make.py writes: {', '.join(differ)}")


if __name__ == "__main__":
    main()
