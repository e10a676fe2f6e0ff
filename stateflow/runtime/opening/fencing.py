"""Fencing whoever may have written for a task before: its own transactional ids, and shared writers that claimed it.

How a predecessor wrote is not known, as the settings of workers may differ and may be changed. So whoever opens a task
takes its own id in any case; the catalog says whether there may be a second one (the commit mode *paranoid*), and
whether writers may have been shared, which are found in the claims log. Whoever shares a writer has claimed the task
before it takes the task's own id, and whoever does not reads the claims after it has: so of two owners that open a
task at the same moment at least one finds the other, whatever they write with.

Threads that open tasks at the same time read the catalog and the claims together, each for all that have come so far.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager

import msgspec

from stateflow.catalog.control import ControlTopic, refuse_unfinished
from stateflow.catalog.encoding import CatalogItem
from stateflow.catalog.model import Catalog
from stateflow.catalog.names import control_topic
from stateflow.catalog.written import refuse_older
from stateflow.clock import Clock
from stateflow.errors import GenerationUnfinished, OffsetsPending, ProducerFenced
from stateflow.failpoints import reach
from stateflow.log.base import Cluster, Committed, Writer
from stateflow.log.together import Together
from stateflow.log.transactions import LastTransaction
from stateflow.record import TopicPartition
from stateflow.runtime.opening.claims import Claim, Claims, ClaimsLog
from stateflow.runtime.opening.fenced import writer_of_id
from stateflow.runtime.opening.hanging_transactions import (
    AWAIT_SHARED_SECONDS,
    HangingTransactions,
    TaskWrites,
)
from stateflow.runtime.opening.inline import inline_without
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.rotating_producer import RotatingProducer, second_id
from stateflow.runtime.task.wiring import TaskWiring

_ByApp = Callable[[Collection[str]], Mapping[str, Catalog]]


class Fencing:
    """What it takes to open any task with certainty that nobody else writes for it. Thread-safe.

    ``claims`` is the claims log of a worker that shares writers; whoever does not opens it where the catalog says so.
    """

    def __init__(
        self, cluster: Cluster, settings: WorkerSettings, clock: Clock, claims: ClaimsLog | None = None
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._clock = clock
        self._claims = claims
        self._fenced: dict[str, LastTransaction | None] = {}
        """Shared writers that were fenced from here, and what was known of them: an id is never used again."""
        self._controls: dict[str, ControlTopic] = {}
        has_threads = bool(settings.restore_threads)
        self._catalogs: _ByApp = Together(self._load) if has_threads else self._load
        self._two_ids: _ByApp = Together(self._note_two_ids) if has_threads else self._note_two_ids

    def predecessors(
        self, wiring: TaskWiring, claim: Claim | None = None, *, shares: bool = False
    ) -> Predecessors:
        """Those who may have written for a task. Who ``shares`` a writer has the ``claim``, where there need be one."""
        left_open = HangingTransactions(self._cluster, TaskWrites.of(wiring))
        return Predecessors(self, left_open, wiring, claim, shares=shares or claim is not None)

    def fence_id(self, wiring: TaskWiring) -> None:
        """Fence whoever writes by the task's own id."""
        if wiring.is_transactional:
            self._cluster.fence(wiring.transactional_id)

    def writer(self, wiring: TaskWiring) -> Writer:
        """A writer by the task's own id, whose predecessors are fenced."""
        if not wiring.is_transactional:
            return self._cluster.writer()
        if self._has_two_ids(wiring):
            pool = inline_without(self._settings.restore_threads)
            return RotatingProducer(self._cluster, wiring.transactional_id, pool)
        changelogs = frozenset(changelog.topic for changelog in wiring.changelogs.values())
        is_exact = wiring.guarantee == "exactly-once"
        return writer_of_id(self._cluster, wiring.transactional_id, changelogs, is_exact=is_exact)

    def catalog(self, wiring: TaskWiring) -> Catalog:
        """The catalog of this moment: the task's generation is active, and its code knows all steps behind it."""
        found = _refuse_stale_generation(self._catalogs([wiring.app])[wiring.app], wiring)
        refuse_older(wiring.app, wiring.written.lacking(found))
        return found

    def committed(self, wiring: TaskWiring, pending_seconds: float) -> Mapping[TopicPartition, Committed]:
        """The group's offsets of a task's inputs, whose owners are fenced."""
        return self._cluster.committed(wiring.group, wiring.inputs, pending_seconds=pending_seconds)

    def ids(self, wiring: TaskWiring, catalog: Catalog) -> list[str]:
        """The task's own transactional ids."""
        first = wiring.transactional_id
        has_two = self._has_two_ids(wiring) or catalog.app.two_ids
        return [first, second_id(first)] if has_two else [first]

    def fence_control(self, app: str) -> None:
        """Fence whoever writes the catalog; one that lives reads it again, and goes on."""
        self._cluster.fence(control_topic(app))

    def fence_second_id(self, wiring: TaskWiring, catalog: Catalog) -> None:
        """Commit modes may differ between workers, and a predecessor that hangs may hold either id.

        Whoever uses two ids writes it into the catalog before its first transaction; whoever uses one looks there
        after it has fenced that one, and fences the other, too.
        """
        if self._has_two_ids(wiring):
            if not catalog.app.two_ids:
                self._two_ids([wiring.app])
        elif catalog.app.two_ids:
            self._cluster.fence(second_id(wiring.transactional_id))

    def fence_shared(self, writer: str, log: ClaimsLog) -> LastTransaction | None:
        """Fence a shared writer, unless that was done from here; what was known of its last transaction before."""
        if writer not in self._fenced:
            self._fenced[writer] = log.fence(writer)
        return self._fenced[writer]

    @contextmanager
    def claims(self, app: str) -> Iterator[ClaimsLog]:
        """The claims log of an application."""
        if self._claims is not None:
            yield self._claims
            return
        with closing(ClaimsLog(self._cluster, app, self._clock)) as log:
            yield log

    def _load(self, apps: Collection[str]) -> Mapping[str, Catalog]:
        return {app: self._control(app).load() for app in apps}

    def _note_two_ids(self, apps: Collection[str]) -> Mapping[str, Catalog]:
        return {app: self._control(app).change(_with_two_ids) for app in apps}

    def _control(self, app: str) -> ControlTopic:
        return self._controls.setdefault(app, ControlTopic(self._cluster, app))

    def _has_two_ids(self, wiring: TaskWiring) -> bool:
        return wiring.guarantee == "exactly-once" and self._settings.commit_mode == "paranoid"


class Predecessors:
    """Those who may have written for one task. To be made before the fence; its methods are called in this order."""

    def __init__(
        self,
        fencing: Fencing,
        left_open: HangingTransactions,
        wiring: TaskWiring,
        claim: Claim | None,
        *,
        shares: bool,
    ) -> None:
        self._fencing = fencing
        self._left_open = left_open
        self._wiring = wiring
        self._claim = claim
        self._shares = shares
        self._shared: list[str] = []
        """Shared writers that are fenced."""
        self._catalog: Catalog | None = None
        self._stale_claims: list[bytes] = []
        """Claims that say nothing any more."""

    def take_over(self) -> Writer | None:
        """Return when predecessors can write no more and nothing of theirs is open.

        With a writer by the task's own id, or None for who shares one: it fences that id, and does not write by it.
        """
        wiring = self._wiring
        writer, catalog = self._fence()
        self._catalog = catalog
        if not wiring.is_transactional:
            return writer
        try:
            if self._left_open.end([*self._fencing.ids(wiring, catalog), *self._shared]):
                _close(writer)
                writer, _ = self._fence()
                self._left_open.check_changelogs()
            return writer
        except BaseException:
            _close(writer)
            raise

    @property
    def catalog(self) -> Catalog:
        """As it was after the fence, before the committed offsets were read."""
        assert self._catalog is not None, "predecessors are fenced first"
        return self._catalog

    def committed(self) -> Mapping[TopicPartition, Committed]:
        """The group's offsets, which no predecessor can hold any more."""
        try:
            return self._fencing.committed(self._wiring, self._left_open.await_offsets_seconds)
        except OffsetsPending:
            if self._wiring.changelogs:
                self._left_open.end_offsets()
                raise
            return self._committed_but_for_first()

    def _committed_but_for_first(self) -> Mapping[TopicPartition, Committed]:
        """The offsets, once whoever died while it wrote first positions holds them no longer: that is done by the
        control topic's id.
        """
        self._fencing.fence_control(self._wiring.app)
        try:
            return self._fencing.committed(self._wiring, self._left_open.await_offsets_seconds)
        except OffsetsPending:
            self._left_open.end_offsets()
            self._left_open.end_first_positions(self.catalog)
            raise

    def remove_claims(self) -> None:
        """Remove the claims of those who are fenced, once nothing of theirs need be looked for."""
        if self._stale_claims:
            with self._fencing.claims(self._wiring.app) as log:
                log.remove([*self._stale_claims, *log.read().outdated_outcomes(self._stale_claims)])

    def _fence(self) -> tuple[Writer | None, Catalog]:
        """The writer, with which its predecessors can write no more, and the catalog of this moment."""
        wiring, fencing = self._wiring, self._fencing
        writer = None
        if self._shares:
            fencing.fence_id(wiring)
        else:
            writer = fencing.writer(wiring)
        try:
            reach("open.after_fence")
            catalog = fencing.catalog(wiring)
            if wiring.is_transactional:
                fencing.fence_second_id(wiring, catalog)
                if catalog.app.shared_writers:
                    self._left_open.await_stable_seconds = AWAIT_SHARED_SECONDS
                    self._fence_claims()
            return writer, catalog
        except BaseException:
            _close(writer)
            raise

    def _fence_claims(self) -> None:
        """Fence every shared writer with an earlier claim; of two that open the task now, the later claim wins."""
        self._shared, self._stale_claims = [], []
        with self._fencing.claims(self._wiring.app) as log:
            found = log.read()
            own = None if self._claim is None else self._as_found(self._claim, found)
            for claim in found.of(self._wiring.id):
                if own is not None and claim.writer == own.writer:
                    self._stale_claims += [claim.key] if claim.key != own.key else []
                    continue
                if own is not None and claim.offset > own.offset:
                    raise _claimed_by_others(own, f"for {claim.writer!r} after it was")
                last = self._fencing.fence_shared(claim.writer, log)
                self._left_open.know(claim.writer, last)
                self._shared.append(claim.writer)
                self._stale_claims.append(claim.key)

    def _as_found(self, own: Claim, found: Claims) -> Claim:
        """The own claim, and where it stands among those of others, which may come between claims made together."""
        if own.key not in found.by_key:
            raise _claimed_by_others(own, "by somebody who removed the claim")
        return found.by_key[own.key]


def _claimed_by_others(own: Claim, how: str) -> ProducerFenced:
    return ProducerFenced(
        f"Task {own.task} was claimed {how} for {own.writer!r}.",
        action="stop this instance, if the task shall not run here; it goes on from the last commit.",
        transactional_id=own.writer,
    )


def _close(writer: Writer | None) -> None:
    if writer is not None:
        writer.close()


def _with_two_ids(catalog: Catalog | None) -> list[CatalogItem]:
    assert catalog is not None, "it was read before the task was opened"
    return [] if catalog.app.two_ids else [msgspec.structs.replace(catalog.app, two_ids=True)]


def _refuse_stale_generation(loaded: Catalog, wiring: TaskWiring) -> Catalog:
    """The catalog as it is now, in which the task's generation is the active one, and none is being prepared.

    A worker that a repartition has overtaken (it hung, its session ended, it came back) may join its group again, but
    must not open a task: input that it read would go to topics which nobody reads any more.
    Raises ``GenerationUnfinished`` otherwise. Call it as a member of the group, or of the group that stands for it: a
    repartition looks for members after it has announced its generation, so one of the two sees the other.
    """
    catalog = refuse_unfinished(loaded)
    if catalog.active.generation != wiring.generation:
        raise GenerationUnfinished(
            f"task {wiring.id} is of generation {wiring.generation}, and generation {catalog.active.generation} with"
            f" {catalog.active.partitions} partitions has become active since this worker started.",
            action="start the worker again: it then runs the tasks of the active generation.",
            app=wiring.app,
            generation=catalog.active.generation,
            partitions=catalog.active.partitions,
        )
    return catalog
