"""A two-stage application made by hand on the runtime's contracts: re-key words, then number each word's records."""

from __future__ import annotations

import struct

from stateflow.catalog.model import StoreEntry
from stateflow.lab.applications.untimed import UntimedPipeline
from stateflow.operators.steps.context import StageContext
from stateflow.operators.topology.topology import Input, Stage, Topology
from stateflow.record import RecordBatch

APP = "numbered"
SOURCE = "words"
OUTPUT = "numbers"
STORE = "count"
_COUNT = struct.Struct(">q")


class Rekey(UntimedPipeline):
    """Passes every record on under its value as key."""

    def __init__(self, context: StageContext) -> None:
        self._context = context

    def process(self, batch: RecordBatch) -> None:
        self._context.rekey_many("by-word", batch.values, batch.values, batch.timestamps_ms)


class Number(UntimedPipeline):
    """Emits 1, 2, 3, … for each word: a gap is a loss, a repetition is a record counted twice."""

    def __init__(self, context: StageContext) -> None:
        self._context = context

    def process(self, batch: RecordBatch) -> None:
        store = self._context.store(STORE)
        numbers = []
        for key in batch.keys:
            before = store.get(key)
            number = (_COUNT.unpack(before)[0] if before else 0) + 1
            store.put(key, _COUNT.pack(number))
            numbers.append(_COUNT.pack(number))
        self._context.send_many(OUTPUT, batch.keys, numbers, batch.timestamps_ms)


def topology() -> Topology:
    store = StoreEntry(
        name=STORE,
        stage="number",
        kind="value",
        layout="plain",
        key_codec={"codec": "bytes"},
        value_codec={"codec": "int64"},
    )
    return Topology(
        APP,
        (
            Stage("rekey", (Input(SOURCE),), (), (), ("by-word",), Rekey),
            Stage("number", (Input("by-word", "rekey"),), (store,), (OUTPUT,), (), Number),
        ),
    )


def number_of(value: bytes) -> int:
    """The number in an output or changelog value."""
    return int(_COUNT.unpack(value)[0])
