"""What a worker tells others on the members' topic, where ``stateflow workers`` looks: late records, waiting tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import partial
from typing import Generic, TypeVar

import msgspec

from stateflow.catalog.names import control_topic, members_topic
from stateflow.clock import Clock
from stateflow.errors import BrokerUnreachable, StateflowError
from stateflow.log.base import Cluster, Writer
from stateflow.runtime.background import BackgroundRequest
from stateflow.runtime.event_time.out_of_bounds import OutOfBounds
from stateflow.runtime.opening.retries import WaitingTask
from stateflow.runtime.worker.member_records import (
    OutOfBoundsReport,
    WaitingReport,
    create_membership_topic,
    encode_out_of_bounds,
    encode_waiting,
    membership_partition,
    waiting_key,
)

_LOG = logging.getLogger(__name__)

TELL_SECONDS = 5.0
_REPEAT_SECONDS = 600.0
"""The topic forgets after an hour; what a running task has met is said again before."""
WAITING_REPEAT_SECONDS = 60.0
"""That a task waits is said again so often: whoever has ended says nothing any more, and has no tasks that wait."""
_REFUSED_SECONDS = 600.0
_WAIT_SECONDS = 2.0
"""A worker that ends waits for its last report, so that must not take long."""

_Fact = TypeVar("_Fact", OutOfBounds, WaitingTask)


class _Kind(Generic[_Fact]):
    """News of one kind: each fact is told when it is new, and again after a time.

    With ``is_taken_back`` a fact that holds no more is deleted from the topic.
    """

    def __init__(
        self, encoded: Callable[[_Fact], tuple[bytes, bytes]], repeat_seconds: float, *, is_taken_back: bool
    ) -> None:
        self._encoded: Callable[[_Fact], tuple[bytes, bytes]] = encoded
        self._repeat_seconds = repeat_seconds
        self._is_taken_back = is_taken_back
        self._told: dict[bytes, tuple[_Fact, float]] = {}
        self._telling: dict[bytes, _Fact] = {}
        self._over: frozenset[bytes] = frozenset()

    def to_write(self, facts: Iterable[_Fact], now_seconds: float) -> dict[bytes, bytes | None]:
        """The records that tell what is new of all that holds now; ``written`` follows when they are."""
        records: dict[bytes, bytes | None] = {}
        present: dict[bytes, _Fact] = {}
        for fact in facts:
            key, value = self._encoded(fact)
            present[key] = fact
            if self._is_new(key, fact, now_seconds):
                records[key] = value
        self._telling = {key: present[key] for key in records}
        self._over = frozenset(self._told.keys() - present.keys() if self._is_taken_back else ())
        return {**records, **dict.fromkeys(self._over)}

    def written(self, now_seconds: float) -> None:
        """What ``to_write`` has returned is in the topic."""
        self._told.update({key: (fact, now_seconds) for key, fact in self._telling.items()})
        for key in self._over:
            del self._told[key]

    def _is_new(self, key: bytes, fact: _Fact, now_seconds: float) -> bool:
        told, told_seconds = self._told.get(key, (None, 0.0))
        return told != fact or now_seconds - told_seconds >= self._repeat_seconds


class StatusReports:
    """Used by the poll thread. An application with nothing to tell writes nothing, and has no such topic for it.

    ``requests`` takes the place of the thread that writes, one report at a time.
    """

    def __init__(
        self, cluster: Cluster, app: str, worker: str, clock: Clock, requests: Executor | None = None
    ) -> None:
        self._cluster = cluster
        self._app = app
        self._worker = worker
        self._clock = clock
        self._request = BackgroundRequest[None]("reports", requests)
        self._writer: Writer | None = None
        """While a report is under way, its thread's."""
        self._out_of_bounds = _Kind(self._out_of_bounds_record, _REPEAT_SECONDS, is_taken_back=False)
        self._waiting = _Kind(self._waiting_record, WAITING_REPEAT_SECONDS, is_taken_back=True)
        self._turn_seconds = -TELL_SECONDS
        self._told_seconds = 0.0

    def turn(
        self, met: Iterable[OutOfBounds], waiting: Iterable[WaitingTask] = (), *, is_last: bool = False
    ) -> None:
        """Begin to tell what is new since it was told last; a cluster that cannot take it is tried again later.

        The last report is waited for, and the one before it.
        """
        if is_last:
            self._request.wait()
        self._take_outcome()
        now_seconds = self._clock.monotonic_seconds()
        is_too_soon = self._request.is_under_way or now_seconds - self._turn_seconds < TELL_SECONDS
        if is_too_soon and not is_last:
            return
        wait = [] if is_last else list(waiting)
        if self._writer is None and any(task.error == BrokerUnreachable.__name__ for task in wait):
            return  # it would fail, and nothing would be told for long after the brokers are back
        self._turn_seconds = now_seconds
        records = self._out_of_bounds.to_write(met, now_seconds) | self._waiting.to_write(wait, now_seconds)
        if not records:
            return
        self._told_seconds = now_seconds
        self._request.begin(partial(self._write, records))
        if is_last:
            self._request.wait()
        self._take_outcome()

    def close(self) -> None:
        """Release the connection, if there was anything to tell. A report that is under way still uses it."""
        self._request.close(waits=True)
        if self._writer is not None:
            self._writer.close()

    def _take_outcome(self) -> None:
        if not self._request.is_over:
            return
        try:
            self._request.take()
        except StateflowError as error:
            _LOG.warning("Cannot report late records and waiting tasks to the other workers: %s", error)
            self._turn_seconds = self._clock.monotonic_seconds() + _REFUSED_SECONDS
            return
        self._out_of_bounds.written(self._told_seconds)
        self._waiting.written(self._told_seconds)

    def _out_of_bounds_record(self, out_of_bounds: OutOfBounds) -> tuple[bytes, bytes]:
        fields = msgspec.structs.asdict(out_of_bounds)
        return encode_out_of_bounds(
            OutOfBoundsReport(**fields, worker=self._worker, written_ms=self._clock.now_ms())
        )

    def _waiting_record(self, task: WaitingTask) -> tuple[bytes, bytes]:
        fields = msgspec.structs.asdict(task)
        report = WaitingReport(**fields, worker=self._worker, written_ms=self._clock.now_ms())
        return waiting_key(task.task), encode_waiting(report)

    def _write(self, records: dict[bytes, bytes | None]) -> None:
        topic, partition = membership_partition(self._app)
        if self._writer is None:
            control = control_topic(self._app)
            found = self._cluster.describe([control, members_topic(self._app)])
            if members_topic(self._app) not in found:
                create_membership_topic(self._cluster, self._app, found[control].replication)
            self._writer = self._cluster.writer()
        self._writer.begin()
        for key, value in records.items():
            self._writer.send(topic, key, value, partition=partition)
        self._writer.commit(_WAIT_SECONDS)
