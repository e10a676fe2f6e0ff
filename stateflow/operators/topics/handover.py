"""The way out of a stage through one re-key step: what travels there beside keys and values."""

from __future__ import annotations

from collections.abc import Sequence

from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.rows import left_of, without
from stateflow.operators.steps.size_limit import SizeLimit
from stateflow.operators.steps.step import Environment
from stateflow.record import Headers, RecordBatch


class Handover:
    """Sends rows through one re-key step: with their times, marks and headers, and where they began if it matters."""

    def __init__(self, name: str, env: Environment, guard: Guard) -> None:
        self._name = name
        self._context = env.context
        self._origin = env.origin if name in env.tell_origin else None
        self._guard = guard
        self._limit: SizeLimit | None = None

    def send(self, rows: RecordBatch, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Send the rows with these keys and values. A record that is too large follows the policy."""
        headers: Sequence[Headers] = rows.headers
        if self._origin is not None:
            began = self._origin.headers(rows.offsets)
            headers = (
                [(*first, *own) for first, own in zip(began, headers, strict=True)] if headers else began
            )
        if self._guard.lets_go:
            large = self._size_limit().too_large(keys, values, headers, rows.offsets)
            if large:
                rows = without(rows, large)
                keys, values, headers = (left_of(column, large) for column in (keys, values, headers))
        if len(rows):
            self._context.rekey_many(self._name, keys, values, rows.timestamps_ms, rows.marks_ms, headers)

    def _size_limit(self) -> SizeLimit:
        if self._limit is None:  # the topic is known to a running task only
            self._limit = SizeLimit(self._context.rekey_topic(self._name), self._context, self._guard)
        return self._limit
