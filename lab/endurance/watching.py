"""Watching an application from outside: whether it commits, what its processes hold in memory, whether they live."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog
from stateflow.catalog.names import changelog_topic
from stateflow.catalog.stages import stage_inputs
from stateflow.errors import StateflowError
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition

LOOK_SECONDS = 0.2
_KIB = 1024


def family(pid: int) -> list[int]:
    """A process and all below it that are there now (Linux)."""
    found = [pid]
    for member in found:  # grows while it is walked
        try:
            for task in Path(f"/proc/{member}/task").iterdir():
                found += map(int, (task / "children").read_text(encoding="ascii").split())
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
    return found


def rss_bytes(pid: int) -> int:
    """Resident memory of one process, 0 for one that is gone (Linux)."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * _KIB for line in lines if line.startswith("VmRSS:")), 0)


def cpu_seconds(pid: int) -> float:
    """CPU of a process and its ended children (Linux); 0 for one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Seen:
    """What was seen of an application while it worked."""

    gap_seconds_max: float = 0.0
    """Longest time without a commit that anybody could see, while there was work."""
    rss_bytes_max: int = 0
    """Most that one of its processes held."""
    blind_seconds: float = 0.0
    """For how long the broker could not be asked; no gap is counted then."""
    back_seconds: float = 0.0
    """After an outage, from the broker's return to the first commit."""


class Watch:
    """Looks at an application every now and then: ``begin`` when it runs, then ``looking`` while it works.

    What every commit leaves behind is looked at: positions of inputs, changelogs and outputs up to the last stable
    offset. So work that moves no position, such as closing windows, is seen, too.
    """

    def __init__(self, cluster: Cluster, app: str, output: str, partitions: int) -> None:
        self._cluster = cluster
        self._app = app
        self._outputs = [TopicPartition(output, number) for number in range(partitions)]
        self._catalog: Catalog | None = None
        self._before: object = None
        self._changed_seconds = time.monotonic()
        self.seen = Seen()

    def begin(self) -> None:
        """It runs: from now on commits are expected."""
        self._changed(self._state())

    def await_return(self) -> None:
        """The broker is back: commits are expected again from the first one on."""
        self._changed(None)

    def is_back(self, returned_seconds: float) -> bool:
        """After an outage: whether a commit was seen since the first call; then it notes how long that took."""
        now = self._state()
        if self._before is None:
            self._before = now
        if now == self._before:
            return False
        self.seen.back_seconds = time.monotonic() - returned_seconds
        self._changed(now)
        return True

    @contextmanager
    def looking(self, pid: int) -> Iterator[None]:
        """Look often, on a thread of its own: reading results meanwhile takes longer than commits are apart."""
        over = threading.Event()
        with ThreadPoolExecutor(1, thread_name_prefix="watch") as pool:
            watching = pool.submit(self._look_until, over, pid)
            try:
                yield
            finally:
                over.set()
        watching.result()

    def _look_until(self, over: threading.Event, pid: int) -> None:
        while not over.wait(LOOK_SECONDS):
            self.look(pid)

    def look(self, pid: int) -> None:
        """Note how far it has come and what it holds."""
        self.seen.rss_bytes_max = max(self.seen.rss_bytes_max, *map(rss_bytes, family(pid)))
        asked_seconds = time.monotonic()
        try:
            now = self._state()
        except StateflowError:  # the broker is away, as the case may want it
            self.seen.blind_seconds += time.monotonic() - asked_seconds
            self._changed(None)
            return
        if self._before is None:
            self._before = now
        since = time.monotonic() - self._changed_seconds
        self.seen.gap_seconds_max = max(self.seen.gap_seconds_max, since)
        if now != self._before:
            self._changed(now)

    def _changed(self, state: object) -> None:
        self._before, self._changed_seconds = state, time.monotonic()

    def _state(self) -> object:
        if self._catalog is None:
            self._catalog = ControlTopic(self._cluster, self._app).load()
        catalog = self._catalog
        inputs = [source for stage in catalog.stages for source in stage_inputs(catalog, stage)]
        committed = self._cluster.committed(self._app, inputs, stable=False)
        logs = self._cluster.ranges([*self._changelogs(catalog), *self._outputs])
        return committed, logs

    def _changelogs(self, catalog: Catalog) -> Iterator[TopicPartition]:
        generation = catalog.active.generation
        for store in catalog.stores.values():
            for number in range(catalog.partitions(store.stage)):
                yield TopicPartition(changelog_topic(self._app, store.name, generation), number)
