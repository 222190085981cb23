"""What the description alone does not tell schemathesis: a task that exists, and bytes that are reports of it."""

import os
import re

import schemathesis
from hypothesis import strategies as st

PREFIX = bytes.fromhex(os.environ["MECHANISM"])[:8]


def report(round_, name, counts):
    return b"\1" + PREFIX + round_.to_bytes(4, "big") + name + bytes([counts])


def bulk(reports):
    return b"".join(len(report).to_bytes(4, "big") + report for report in reports)


# Five coordinates of one bit; the first rounds.
reports = st.builds(report, st.integers(1, 3), st.binary(min_size=16, max_size=16), st.integers(0, 31))
one = reports | st.binary(max_size=100)
many = st.lists(reports, min_size=4, max_size=8).map(bulk) | st.lists(one, max_size=5).map(bulk) | st.binary(max_size=100)
anything = st.binary(max_size=300)

schemathesis.openapi.media_type("application/vnd.incrowd.report", one)
schemathesis.openapi.media_type("application/vnd.incrowd.reports", many)
schemathesis.openapi.media_type("application/vnd.incrowd.sealed-report", anything)
schemathesis.openapi.media_type("application/vnd.incrowd.sealed-reports", anything)
schemathesis.openapi.media_type("message/ohttp-req", anything)


@schemathesis.hook
def before_load_schema(context, schema):
    """There is one task; every other id is to be refused."""
    if "TASK" not in os.environ:
        return
    schema["components"]["parameters"]["task"]["schema"] = {"type": "string", "enum": [os.environ["TASK"]]}


@schemathesis.hook
def before_call(context, case, kwargs):
    """Allowed, but not what this is about: to wait, and a release that the shuffler never made, which stops it for good."""
    if case.query and str(case.query.get("wait", "")) in map(str, range(1, 61)):
        case.query["wait"] = 0
    if case.query and re.fullmatch("[0-9a-f]{64}", str(case.query.get("after", ""))):
        del case.query["after"]
