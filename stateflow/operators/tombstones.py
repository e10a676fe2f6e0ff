"""Rows without a value, tombstones, in the midst of a stage: who is given them."""

from __future__ import annotations

from stateflow.operators.rows import where
from stateflow.operators.step import Step
from stateflow.record import RecordBatch


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
