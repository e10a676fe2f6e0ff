"""The shared writers of one worker: which task writes with which of them, and the claims that go with it."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.encoding import CatalogItem
from stateflow.catalog.model import FORMAT_SHARED_WRITERS, Catalog
from stateflow.catalog.names import writer_id
from stateflow.clock import Clock
from stateflow.errors import StateflowError
from stateflow.failpoints import reach
from stateflow.log.base import Cluster
from stateflow.log.together import Together
from stateflow.runtime.opening.claims import Claim, ClaimsLog
from stateflow.runtime.opening.fenced import writer_of_id
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.shared_writer import SharedWriter, WriterPart
from stateflow.runtime.task.wiring import TaskWiring, Wiring

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Claimed:
    """A task's part of a shared writer, and its claim; None for a task that nobody need fence."""

    part: WriterPart
    claim: Claim | None
    writers: SharedWriters

    def give_back(self) -> None:
        """Let go of a task that was claimed, and has never run."""
        self.writers.give_back(self)

    @property
    def writer(self) -> SharedWriter:
        """The writer as it is shared."""
        return self.part.shared


_ByApp = Callable[[Collection[str]], Mapping[str, Catalog]]
_ByNumber = Callable[[Collection[int]], Mapping[int, SharedWriter]]


@dataclass(slots=True)
class _Lives:
    """The newest life of each writer. No call of a broker is made under the lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    by_number: dict[int, SharedWriter] = field(default_factory=dict)
    all: list[SharedWriter] = field(default_factory=list)


class SharedWriters:
    """The writers of one worker, made when they are needed. Tasks may be opened on several threads."""

    def __init__(self, cluster: Cluster, wiring: Wiring, settings: WorkerSettings, clock: Clock) -> None:
        self._cluster = cluster
        self._writers = settings.shared_writers
        self._app = wiring.topology.app
        self._is_exact = wiring.catalog.app.guarantee == "exactly-once"
        self._changelogs = frozenset(
            changelog.topic for task in wiring.tasks() for changelog in task.changelogs.values()
        )
        self._is_known = False
        """Whether the catalog says that writers are shared."""
        self._lives = _Lives()
        has_threads = bool(settings.restore_threads)
        self.claims = ClaimsLog(cluster, self._app, clock, is_shared=has_threads)
        self._announcing: _ByApp = Together(self._announce_all) if has_threads else self._announce_all
        self._beginning: _ByNumber = Together(self._begin_lives) if has_threads else self._begin_lives

    @property
    def has_ended(self) -> bool:
        """True while tasks may write by a writer that is over."""
        return any(life.is_over and not life.is_closed for life in self._lives.all)

    def claim(self, wiring: TaskWiring) -> Claimed:
        """A part of a writer for a task that is to be opened, and its claim, which is in the log on return.

        Nothing may be written before those are fenced that claimed it earlier. Raises what making a writer raises.
        """
        self._announce()
        part = self._part(wiring)
        try:
            claim = self.claims.claim(wiring.id, part.shared.id) if wiring.is_transactional else None
        except BaseException:
            part.close()
            raise
        return Claimed(part, claim, self)

    def release(self, released: Iterable[Claimed]) -> None:
        """Remove the claims of tasks that were let go of, after the last transaction that has anything of them.

        To be called on the host's thread, or for a task that has not run. What cannot be removed is fenced by the next
        owner, and so is what is in doubt.
        """
        keys = [
            each.claim.key
            for each in released
            if each.claim is not None and each.writer.may_release(each.part)
        ]
        self._remove(keys)

    def give_back(self, claimed: Claimed) -> None:
        """Let go of a task that was claimed, and has never run."""
        claimed.part.close()
        if claimed.claim is not None:
            self._remove([claimed.claim.key])

    def close(self) -> None:
        """Abort what is open and release the connections."""
        with self._lives.lock:
            lives, self._lives.all = self._lives.all, []
            self._lives.by_number.clear()
        try:
            for life in lives:
                life.close()
        finally:
            self.claims.close()

    def _remove(self, keys: list[bytes]) -> None:
        if not keys:
            return
        reach("release.before")
        try:
            self.claims.remove(keys)
        except StateflowError as error:
            _LOG.warning("%d tasks could not be released, the next owner fences them: %s", len(keys), error)

    def _announce(self) -> None:
        """Before the first claim: the catalog says that there are some, and older versions keep out.

        Of threads that come at once one does so for all: they would fence each other's writer of the catalog.
        """
        if not self._is_known:
            self._announcing([self._app])

    def _announce_all(self, apps: Collection[str]) -> Mapping[str, Catalog]:
        if not self._is_known:
            self.claims.create(sorted(self._changelogs))
        changed = {app: ControlTopic(self._cluster, app).change(_with_shared_writers) for app in apps}
        self._is_known = True
        return changed

    def _part(self, wiring: TaskWiring) -> WriterPart:
        number = wiring.partition % self._writers
        while True:
            with self._lives.lock:
                life = self._lives.by_number.get(number)
            part = None if life is None else life.part(wiring.id)
            if part is not None:
                return part
            self._beginning([number])

    def _begin_lives(self, numbers: Collection[int]) -> Mapping[int, SharedWriter]:
        return {number: self._life(number) for number in numbers}

    def _life(self, number: int) -> SharedWriter:
        """The life of a writer; another one where it is over, unless another thread begins one meanwhile."""
        with self._lives.lock:
            before = self._lives.by_number.get(number)
        if before is not None and not (before.is_over or before.is_closed):
            return before
        name = writer_id(self._app, uuid.uuid4().hex)
        inner = writer_of_id(self._cluster, name, self._changelogs, is_exact=self._is_exact)
        made = SharedWriter(inner, name)
        with self._lives.lock:
            is_needed = self._lives.by_number.get(number) is before
            if is_needed:
                self._lives.by_number[number] = made
                self._lives.all = [life for life in self._lives.all if not life.is_closed] + [made]
            newest = self._lives.by_number.get(number, made)
        if not is_needed:
            made.close()
        return newest


def writers_of(
    cluster: Cluster, wiring: Wiring, settings: WorkerSettings, clock: Clock
) -> SharedWriters | None:
    """The writers that a worker's tasks share; None where each has its own.

    All that are made from now on send no more at a time than the topics take that the application writes to.
    """
    cluster.fit_batches(wiring.written_topics)
    if not settings.shared_writers or settings.commit_mode == "paranoid":
        return None
    return SharedWriters(cluster, wiring, settings, clock)


def _with_shared_writers(catalog: Catalog | None) -> list[CatalogItem]:
    assert catalog is not None, "it was read before any task was opened"
    if catalog.app.shared_writers:
        return []
    return [msgspec.structs.replace(catalog.app, shared_writers=True, format=FORMAT_SHARED_WRITERS)]
