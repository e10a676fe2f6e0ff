"""Planted bugs about event time: idleness, lateness, time to live, and what of it a restart keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from stateflow.changelog.event_time import NO_EVENT_TIME
from stateflow.lab.faults.planted.planting import replaced
from stateflow.operators.classes.operator_step import OperatorStep
from stateflow.operators.windows.lateness import Lateness
from stateflow.record import RecordBatch, TopicPartition
from stateflow.runtime.event_time.idleness import IdleSources, PositionOf
from stateflow.runtime.event_time.watermarks import Watermarks
from stateflow.runtime.task.task import Task

_FURTHER_THAN_ANY = 1 << 62


@contextmanager
def idle_for_ever() -> Iterator[None]:
    """An input that was idle once is not waited for again, whatever comes on it."""
    real = Watermarks.observe

    def sleepy(marks: Watermarks, upstream: int, mark_ms: int, *, idle: bool = False, **more: Any) -> bool:
        return real(marks, upstream, mark_ms, idle=idle or marks.is_idle(upstream), **more)

    with replaced((Watermarks, "observe", sleepy)):
        yield


@contextmanager
def idle_behind() -> Iterator[None]:
    """An input that was not read for a while is idle, whether or not it has more to give."""
    real = IdleSources.fallen_idle

    def blind(silence: IdleSources, _position: PositionOf, *busy: Any) -> list[TopicPartition]:
        return real(silence, lambda _: _FURTHER_THAN_ANY, *busy)

    with replaced((IdleSources, "fallen_idle", blind)):
        yield


@contextmanager
def furthest_input() -> Iterator[None]:
    """Event time is that of the input that is furthest, not of the one that is behind."""

    def hasty(marks: Watermarks) -> bool:
        value_ms = max(marks._marks_ms)
        has_risen = value_ms > marks._reached_ms
        marks._reached_ms = max(marks._reached_ms, value_ms)
        return has_risen

    with replaced((Watermarks, "_rise", hasty)):
        yield


@contextmanager
def late_by_watermark() -> Iterator[None]:
    """A record is late when its task's event time has gone past it, which depends on how reads were cut."""
    real = Lateness.late_rows

    def by_batch(lateness: Lateness, batch: RecordBatch) -> list[int]:
        marks_ms, batch.marks_ms = batch.marks_ms, None
        try:
            return real(lateness, batch)
        finally:
            batch.marks_ms = marks_ms

    with replaced((Lateness, "late_rows", by_batch)):
        yield


@contextmanager
def expired_before_due() -> Iterator[None]:
    """What a timer looks for is judged, and deleted, as of event time now, not of when the timer was due."""
    real_fire, real_advance = OperatorStep._fire, OperatorStep.advance

    def now(step: OperatorStep, timers: Any, due: Any, watermark_ms: int, out: RecordBatch) -> None:
        for expiry in step._expiries:
            expiry.advance(watermark_ms)
        real_fire(step, timers, due, watermark_ms, out)

    def eager(step: OperatorStep, watermark_ms: int) -> bool:
        for expiry in step._expiries:
            expiry.advance(watermark_ms)
        return real_advance(step, watermark_ms)

    with replaced((OperatorStep, "_fire", now), (OperatorStep, "advance", eager)):
        yield


@contextmanager
def event_time_forgotten() -> Iterator[None]:
    """A task that starts again knows its offsets, and not how far event time had come there."""
    real = Task.__init__

    def forgetful(task: Task, wiring: Any, writer: Any, stores: Any, position: Any, *rest: Any) -> None:
        real(task, wiring, writer, stores, replace(position, event_time=NO_EVENT_TIME), *rest)

    with replaced((Task, "__init__", forgetful)):
        yield
