"""Rows without a value, tombstones, in the midst of a stage: who is given them, and how they travel to another."""

from __future__ import annotations

from stateflow.codec.base import Codec
from stateflow.operators.aggregates.aggregation import with_keys
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.rows import where, without
from stateflow.operators.steps.step import Step
from stateflow.operators.topics.handover import Handover
from stateflow.operators.topics.sources import ReadStep
from stateflow.record import RecordBatch


class SparingStep(Step):
    """Hands rows on; those without a value only to the steps that take such. A function of the value is spared them."""

    takes_tombstones = True

    def forward(self, batch: RecordBatch) -> None:
        """Hand rows to every step behind this one that takes them."""
        forward_sparing(self, batch)


class KeyedReadStep(ReadStep):
    """Records of a repartition topic that was written under the records' own keys: tombstones are among them."""

    def forward(self, batch: RecordBatch) -> None:
        """Hand rows to every step behind this one that takes them."""
        forward_sparing(self, batch)


class RekeyByKeyStep(Step):
    """Sends records on under the keys that they have, so that the application's own routing applies to them.

    ``value`` is a codec that can write that there is none.
    """

    takes_tombstones = True

    def __init__(self, value: Codec[object], handover: Handover, guard: Guard) -> None:
        super().__init__()
        self._value = value
        self._handover = handover
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Encode and hand over; a record without a key, or that cannot be encoded, follows the policy."""
        batch = with_keys(batch, self._guard)
        encoded, failed = self._guard.map(self._value.encode, batch.values, batch.offsets)
        if encoded:
            kept = without(batch, failed)
            self._handover.send(kept, kept.keys, encoded)


def forward_sparing(step: Step, batch: RecordBatch) -> None:
    """Hand rows to the steps behind ``step``; those without a value only to the ones that take such."""
    if not len(batch):
        return
    if None not in batch.values:
        for child in step.children:
            child.process(batch)
        return
    valued = where(batch, [value is not None for value in batch.values])
    for child in step.children:
        given = batch if child.takes_tombstones else valued
        if len(given):
            child.process(given)
