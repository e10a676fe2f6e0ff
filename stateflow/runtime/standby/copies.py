"""All standby copies of one worker: bounded slices of work, on a thread of their own or in turns of the worker.

A slice opens one copy, or fills one a step further, or reads once for all that follow: one reader serves them all.
Slices are bounded in records and in time, and the thread rests between them, longer while the worker restores tasks
that somebody waits for. The poll thread never waits for any of this.

A copy is promoted by handing its open stores to whoever opens the task: the same directory under the same lock, nothing
copied and nothing read again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from stateflow import backoff
from stateflow.clock import Clock
from stateflow.errors import Interrupted, OffsetOutOfRange, StateflowError
from stateflow.failpoints import reach
from stateflow.log.base import Cluster, Reader
from stateflow.memory import memory_shares
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.standby.copy import StandbyCopy
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.runtime.worker.member_records import CopyReport
from stateflow.store.base import TaskStores

_LOG = logging.getLogger(__name__)

S = TypeVar("S", bound=TaskStores)
OpenStores = Callable[[TaskWiring, Callable[[], bool]], S]

_IDLE_SECONDS = 0.1
_LOOK_SECONDS = 1.0
_SHARE = 0.5
"""Part of its thread's time in which copies are worked on."""
_SHARE_BESIDE_RESTORES = 0.1
_RETRY_SECONDS = 5.0
_RETRY_SECONDS_MAX = 300.0


@dataclass(slots=True)
class _Slot(Generic[S]):
    """A wanted copy: open, being opened, or waiting after a failure."""

    wiring: TaskWiring
    copy: StandbyCopy[S] | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    is_opening: bool = False
    failures: int = 0
    retry_seconds: float = 0.0


class StandbyCopies(Generic[S]):
    """The copies that one worker keeps. ``want``, ``take`` and ``reports`` may be called from any thread."""

    def __init__(
        self, cluster: Cluster, open_stores: OpenStores[S], settings: WorkerSettings, clock: Clock
    ) -> None:
        self._cluster = cluster
        self._open_stores = open_stores
        self._settings = settings
        self._clock = clock
        self._bytes_max = memory_shares(settings.memory_bytes, standby=True).standby_bytes
        self._changed = threading.Condition()
        self._slots: dict[str, _Slot[S]] = {}
        self._reader: Reader | None = None
        self._is_stale = True
        self._held: frozenset[str] = frozenset()
        self._holding = threading.Lock()
        self._looked_seconds = -_LOOK_SECONDS
        self._resting_until_seconds = 0.0
        self.is_restoring = False
        """Set while the worker restores tasks of its own: copies then give way."""

    # --- for the worker -----------------------------------------------------------------------------

    def want(self, wirings: Mapping[str, TaskWiring], promoted: Set[str] = frozenset()) -> None:
        """Keep copies of these tasks; what is no longer wanted is closed with the next slice.

        Copies of tasks about to be ``promoted`` are left as they are, for :meth:`take`. Call it again and again: a
        task that the worker holds, or whose last copy is not closed yet, is passed over.
        """
        with self._changed:
            for task in wirings.keys() - self._slots.keys() - self._held:
                self._slots[task] = _Slot(wirings[task])
            for task in self._slots.keys() - wirings.keys() - promoted:
                self._slots[task].cancelled.set()

    def hold(self, tasks: Iterable[str]) -> None:
        """The worker itself runs or opens exactly these tasks: their directories are not ours."""
        # By a lock of its own, for no longer than this: the poll thread calls, and a slice may wait for brokers.
        with self._holding:
            self._held = frozenset(tasks)

    def take(self, task: str) -> S | None:
        """The open stores of a copy, to run the task on; None when there is none. Waits for a slice at most."""
        with self._holding:
            self._held |= {task}
        with self._changed:
            slot = self._slots.get(task)
            if slot is None:
                return None
            slot.cancelled.set()
            self._changed.wait_for(lambda: not slot.is_opening)
            if self._slots.pop(task, None) is None or slot.copy is None:
                return None
            lag_slots = slot.copy.lag_slots
            reach("standby.before_promote")
            stores = slot.copy.release()
            self._read_anew()
        reach("standby.after_promote")
        _LOG.info("Task %s: its standby copy is promoted, %s offset slots behind.", task, lag_slots)
        return stores

    def opener(self) -> OpenStores[S]:
        """Opens a task's stores: those of its copy, if there is one."""

        def open_promoted(wiring: TaskWiring, cancelled: Callable[[], bool]) -> S:
            taken = self.take(wiring.id)
            return self._open_stores(wiring, cancelled) if taken is None else taken

        return open_promoted

    def reports(self) -> list[CopyReport]:
        """Every copy as it is now, those included that are about to be closed."""
        with self._changed:
            return [
                CopyReport(task=task, state="failed" if slot.failures else "filling")
                if slot.copy is None
                else slot.copy.report()
                for task, slot in sorted(self._slots.items())
            ]

    def close(self) -> None:
        """Close all copies; what they hold stays on disk."""
        self.want({})
        with self._changed:
            self._changed.wait_for(lambda: not any(slot.is_opening for slot in self._slots.values()))
            self._close_unwanted()
            self._stop_reading()

    # --- slices -------------------------------------------------------------------------------------

    def run(self, stopped: threading.Event) -> None:
        """Work until ``stopped``: slices, with rests between them."""
        while not stopped.is_set():
            begun_seconds = self._clock.monotonic_seconds()
            worked = self.turn()
            share = _SHARE_BESIDE_RESTORES if self.is_restoring else _SHARE
            busy_seconds = self._clock.monotonic_seconds() - begun_seconds
            stopped.wait(busy_seconds * (1 - share) / share if worked else _IDLE_SECONDS)

    def turn(self) -> bool:
        """One slice; False when there was nothing to do. Errors of a copy are its own: it is tried again later."""
        if self._open_one():
            return True
        with self._changed:
            self._close_unwanted()
            if self._clock.monotonic_seconds() < self._resting_until_seconds:
                return False
            try:
                worked = self._fill_one()
                self._look()
                return self._follow() or worked
            except StateflowError as error:  # the cluster's trouble, not that of one copy
                _LOG.warning("Standby copies rest for %.0f s: %s", _RETRY_SECONDS, error)
                self._resting_until_seconds = self._clock.monotonic_seconds() + _RETRY_SECONDS
                self._stop_reading()
                return False

    def _open_one(self) -> bool:
        now_seconds = self._clock.monotonic_seconds()
        with self._changed:
            waiting = (
                slot
                for _, slot in sorted(self._slots.items())
                if slot.copy is None and not slot.cancelled.is_set() and slot.retry_seconds <= now_seconds
            )
            slot = next(waiting, None)
            if slot is None:
                return False
            slot.is_opening = True
        copy = None
        try:  # without the lock: an image may be fetched, and others are promoted meanwhile
            stores = self._open_stores(slot.wiring, slot.cancelled.is_set)
            copy = StandbyCopy(self._cluster, slot.wiring, stores, self._clock, self._bytes_max // 2)
            reach("standby.after_open")
        except Interrupted:
            _LOG.debug("Task %s: its standby copy is not wanted any more.", slot.wiring.id)
        except StateflowError as error:
            self._failed(slot, error)
        finally:
            with self._changed:
                slot.copy, slot.is_opening = copy, False
                self._changed.notify_all()
        return True

    def _fill_one(self) -> bool:
        """Copies are filled one after the other, so that each is of use as soon as possible."""
        filling = (slot for _, slot in sorted(self._slots.items()) if slot.copy and not slot.copy.follows)
        slot = next(filling, None)
        if slot is None:
            return False
        self._guarded(slot, lambda copy: copy.fill(self._settings.standby_records_per_slice))
        if slot.copy is not None and slot.copy.follows:
            slot.failures = 0
            self._read_anew()
        return True

    def _follow(self) -> bool:
        """Read for all copies that follow; True when there was something."""
        records, records_max = 0, self._settings.standby_records_per_slice
        ends_seconds = self._clock.monotonic_seconds() + self._settings.standby_slice_seconds
        while records < records_max and self._following():
            try:
                read = self._read_once(self._reading(), records_max - records)
            except OffsetOutOfRange as error:
                self._refill_trimmed(error)
                return True
            records += read
            if not read or self._clock.monotonic_seconds() >= ends_seconds:
                break
        for slot in self._following():
            self._guarded(slot, lambda copy: copy.flush(self._settings.flush_interval_seconds))
        return records > 0

    def _read_once(self, reader: Reader, max_records: int) -> int:
        followed = {place: slot for slot in self._following() if slot.copy for place in slot.copy.positions}
        records = 0
        for batch in reader.read(max_records, 0):
            copy = followed[batch.source].copy
            assert copy is not None, "what is read for is open"
            records += copy.take(batch)
        for slot in self._following():
            self._guarded(slot, lambda copy: copy.apply(reader))
        return records

    # --- inside -------------------------------------------------------------------------------------

    def _following(self) -> list[_Slot[S]]:
        return [slot for slot in self._slots.values() if slot.copy is not None and slot.copy.follows]

    def _reading(self) -> Reader:
        self._reader = reader = self._reader or self._cluster.reader(follows=True)
        if self._is_stale:
            self._is_stale = False
            copies = [slot.copy for slot in self._following() if slot.copy is not None]
            reader.assign({place: offset for copy in copies for place, offset in copy.positions.items()})
        return reader

    def _read_anew(self) -> None:
        """Assign anew before the next read: the set of changelogs is another now."""
        self._is_stale = True

    def _stop_reading(self) -> None:
        self._is_stale = True
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _look(self) -> None:
        """Now and then ask where the changelogs end: lag is counted from there."""
        now_seconds = self._clock.monotonic_seconds()
        if now_seconds - self._looked_seconds < _LOOK_SECONDS:
            return
        self._looked_seconds = now_seconds
        slots = self._following()
        places = [place for slot in slots if slot.copy for place in slot.copy.positions]
        ids = {
            name: info.topic_id for name, info in self._cluster.describe({p.topic for p in places}).items()
        }
        ends = self._cluster.ranges(place for place in places if place.topic in ids)
        for slot in slots:
            self._guarded(slot, lambda copy: copy.look(ends, ids))
            if slot.copy is None or not slot.copy.follows:
                self._read_anew()
        self._give_way()

    def _give_way(self) -> None:
        """When all copies together hold back too much, the one that holds most is filled again."""
        held = [slot.copy for slot in self._following() if slot.copy is not None]
        while sum(copy.held_bytes for copy in held) > self._bytes_max // 2:
            max(held, key=lambda copy: copy.held_bytes).refill()
            self._read_anew()

    def _refill_trimmed(self, error: OffsetOutOfRange) -> None:
        """The beginning of a changelog moved past its copy: it is planned anew."""
        for slot in self._slots.values():
            if slot.copy is not None and any(p.topic == error.fields["topic"] for p in slot.copy.positions):
                _LOG.info("Task %s: its standby copy is filled again: %s", slot.wiring.id, error)
                slot.copy.refill()
        self._read_anew()

    def _guarded(self, slot: _Slot[S], work: Callable[[StandbyCopy[S]], object]) -> None:
        """Work on a copy; one that fails is closed and tried again later."""
        if slot.copy is None:
            return
        try:
            work(slot.copy)
        except StateflowError as error:
            copy, slot.copy = slot.copy, None
            self._failed(slot, error)
            self._read_anew()
            try:
                copy.close()
            except StateflowError as closing:
                _LOG.warning("Task %s: closing its standby copy failed, too: %s", slot.wiring.id, closing)

    def _failed(self, slot: _Slot[S], error: StateflowError) -> None:
        slot.failures += 1
        wait_seconds = backoff.pause_seconds(slot.failures, _RETRY_SECONDS, _RETRY_SECONDS_MAX)
        slot.retry_seconds = self._clock.monotonic_seconds() + wait_seconds
        _LOG.warning(
            "Task %s: its standby copy failed and is tried again in %.0f s: %s",
            slot.wiring.id,
            wait_seconds,
            error,
        )

    def _close_unwanted(self) -> None:
        for task in [task for task, slot in self._slots.items() if slot.cancelled.is_set()]:
            slot = self._slots[task]
            if slot.is_opening:
                continue
            del self._slots[task]
            if slot.copy is not None:
                slot.copy.close()
                self._read_anew()
