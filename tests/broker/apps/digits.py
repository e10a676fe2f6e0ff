"""Numbers in, a count per last digit out. What differs between tests comes from the environment.

``DIGITS_APP`` is the application's id; ``DIGITS_ON_ERROR`` the policy for numbers that cannot be decoded;
``DIGITS_CHANGE`` one of the ways in which code can differ from the code that left the state; ``DIGITS_TRACE`` a
file to write every number to that is being processed, ``DIGITS_SECONDS`` how long each of them takes.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import stateflow as sf

ID = os.environ["DIGITS_APP"]
CHANGE = os.environ.get("DIGITS_CHANGE", "")
TRACE = os.environ.get("DIGITS_TRACE", "")
SECONDS = float(os.environ.get("DIGITS_SECONDS", "0"))
POLICIES: dict[str, sf.Fail | sf.Skip | sf.DeadLetter] = {
    "fail": sf.Fail(),
    "skip": sf.Skip(),
    "dead-letter": sf.DeadLetter(f"{ID}-dead"),
}
POLICY = POLICIES[os.environ.get("DIGITS_ON_ERROR", "fail")]


def last_digit(number: int) -> int:
    """The key: state is kept per digit."""
    time.sleep(SECONDS)
    if TRACE:
        with Path(TRACE).open("a") as out:
            out.write(f"{number}\n")
    if number == 13 and CHANGE == "raises":
        raise LookupError("no thirteens here")
    return number % 10


app = sf.App(ID, partitions=1)
numbers = app.topic(f"{ID}-in", value=sf.Integer, partitions=1)

OUT = f"{ID}-out"
digits = app.stream(numbers, on_error=POLICY).key_by(last_digit, name="by-digit", key=sf.Integer)
if CHANGE == "another codec":
    digits.aggregate(sf.mean(), name="seen").to(app.topic(OUT, key=sf.Integer, value=sf.Json, partitions=1))
elif CHANGE == "large":
    sized = digits.map(lambda number: os.urandom(3 << 20) if number == 1 else b"small")
    sized.to(app.topic(OUT, value=sf.Bytes), on_error=POLICY)
elif CHANGE == "another store":
    digits.count(name="counted").to(app.topic(OUT, key=sf.Integer, value=sf.Json, partitions=1))
else:
    digits.count(name="seen").to(app.topic(OUT, key=sf.Integer, value=sf.Json, partitions=1))
