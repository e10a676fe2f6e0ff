"""Numbers in, a count per last two digits out, in several partitions.

``TALLIES_APP`` is the application's id, ``TALLIES_SOURCE`` the topic of numbers, which applications share.
``TALLIES_CHANGE`` is a way in which code can differ from the code that a savepoint was made of.
"""

from __future__ import annotations

import os

import stateflow as sf

ID = os.environ["TALLIES_APP"]
CHANGE = os.environ.get("TALLIES_CHANGE", "")
PARTITIONS = 2

app = sf.App(ID, partitions=PARTITIONS)
numbers = app.topic(os.environ["TALLIES_SOURCE"], value=sf.Integer, partitions=PARTITIONS)
out = app.topic(f"{ID}-out", key=sf.Integer, value=sf.Json, partitions=1)
keyed = app.stream(numbers).key_by(lambda number: number % 100, name="by-end", key=sf.Integer)
keyed.count(name="counted" if CHANGE == "another store" else "seen").to(out)
if CHANGE == "a store more":
    keyed.sum(name="summed")
