"""Results that fail on update: steps behind that hold back what was told before of the same key are told of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stateflow.operators.steps.rows import picked, with_values, without
from stateflow.operators.steps.step import Step
from stateflow.record import RecordBatch

FAILED = object()
"""In the place of a result. Only steps that take such are given it."""


def forward_told(step: Step, rows: RecordBatch, results: list[Any], failed: Sequence[int]) -> None:
    """Hand on rows with the results of those that have one; ``failed`` are the places of the others."""
    step.forward(with_values(without(rows, failed), results))
    forward_failed(step, picked(rows, failed))


def forward_failed(step: Step, batch: RecordBatch) -> None:
    """Hand rows whose results failed to the steps behind that must know; their values do not matter."""
    if not len(batch):
        return
    failed = with_values(batch, [FAILED] * len(batch))
    for child in step.children:
        if child.takes_failed:
            child.process(failed)
