"""The world of the model in which one writer serves all tasks of a worker: workers, their group, one coordinator.

Logs and the effect of a marker on them are those of ``world``.
"""

from __future__ import annotations

from typing import NamedTuple

from stateflow.lab.protocol.world import GROUP, OPEN, EndTxn, Entry, Log, ended, stable_next


class Opening(NamedTuple):
    """A task that a worker brings to life."""

    task: str
    stage: str
    """What was done last: ``told``, ``claimed``, ``fenced``, ``offsets``, ``target``."""
    group_position: int = 0
    target: int = 0


class Act(NamedTuple):
    """One thing that a worker still has to do for the transaction that it is in."""

    kind: str
    """``data``, ``record``, ``repair``, ``offsets`` or ``end``."""
    task: str = ""
    keys: tuple[bytes, ...] = ()
    """Orphaned keys that a repair writes again."""


class Running(NamedTuple):
    """A task at work. That its state is right is checked when it comes to be, so the position says all of it."""

    task: str
    position: int
    """How much of its input is in its state."""
    owner: int
    sequence: int
    """Of its commit records."""


class Worker(NamedTuple):
    """A process and its one writer."""

    name: str
    life: int = 0
    """How many writers it had before."""
    epoch: int = 0
    """Of its writer."""
    is_alive: bool = True
    generation: int | None = None
    """Of the group, as far as it knows; None when it knows that it is not in it."""
    running: tuple[Running, ...] = ()
    opening: Opening | None = None
    batch: tuple[str, ...] = ()
    """Tasks with something in the open transaction."""
    inputs: int = 0
    """How much more of each task's input it contains: 0 for a repair."""
    todo: tuple[Act, ...] = ()
    added: frozenset[str] = frozenset()
    disks: tuple[tuple[str, tuple[int, int]], ...] = ()
    """Local stores: per task the input that is in it, and how far into the changelog it reaches."""

    def at(self, task: str) -> Running:
        """A running task."""
        return next(running for running in self.running if running.task == task)

    def let_go(self, task: str) -> Worker:
        """Without one of its tasks."""
        return self._replace(running=tuple(running for running in self.running if running.task != task))


class Left(NamedTuple):
    """What may still happen."""

    moves: int
    throws: int
    crashes: int
    retries: int
    duplicates: int
    timeouts: int
    slow_markers: int
    lost_markers: int


class Shared(NamedTuple):
    """Everything."""

    logs: tuple[tuple[str, Log], ...]
    workers: tuple[Worker, ...]
    owners: tuple[tuple[str, str], ...]
    """Task and the worker that shall run it."""
    members: frozenset[str]
    generation: int
    epochs: tuple[tuple[str, int], ...]
    """Per transactional id, the epoch that the coordinator accepts."""
    ongoing: frozenset[tuple[str, str]]
    """Transactional ids and partitions of open transactions."""
    markers: frozenset[tuple[EndTxn, str]]
    """Transactions that are decided, and partitions that have not heard of it."""
    late: frozenset[EndTxn]
    claims: tuple[tuple[str, str], ...]
    """Tasks and transactional ids in the order of the claims log, without those released or fenced."""
    left: Left

    def log(self, name: str) -> Log:
        """One partition."""
        for known, log in self.logs:
            if known == name:
                return log
        raise KeyError(name)

    def epoch(self, writer: str) -> int:
        """The epoch of an id that the coordinator accepts."""
        for known, epoch in self.epochs:
            if known == writer:
                return epoch
        return 0

    def owner(self, task: str) -> str:
        """Who shall run it."""
        return dict(self.owners)[task]

    def is_ending(self, writer: str) -> bool:
        """True while markers of its last transaction are on their way: the coordinator lets it, and who fences
        it, wait."""
        return any(request.writer == writer for request, _ in self.markers)

    def with_worker(self, worker: Worker) -> Shared:
        """One worker replaced."""
        workers = tuple([worker if w.name == worker.name else w for w in self.workers])
        return Shared(self.logs, workers, *self[2:])

    def with_log(self, name: str, log: Log) -> Shared:
        """One partition replaced."""
        return Shared(tuple([(n, log) if n == name else (n, old) for n, old in self.logs]), *self[1:])

    def spend(self, what: str) -> Shared:
        """One fault less is left."""
        return self._replace(left=self.left._replace(**{what: getattr(self.left, what) - 1}))


def append(world: Shared, writer: str, partition: str, key: bytes, value: bytes, status: str) -> Shared:
    """A record of a writer in a partition."""
    log = world.log(partition)
    entry = Entry(log.offset_next, key, value, status, writer if status == OPEN else "")
    grown = world.with_log(partition, Log((*log.entries, entry), log.offset_next + 1))
    return grown._replace(ongoing=grown.ongoing | {(writer, partition)}) if status == OPEN else grown


def end_transaction(
    world: Shared, request: EndTxn, without: frozenset[str] = frozenset(), *, are_lost: bool = False
) -> Shared:
    """The coordinator obeys an EndTxn of the current epoch of an id. Partitions of ``without`` hear of it later, or
    never."""
    if request.epoch != world.epoch(request.writer) or world.is_ending(request.writer):
        return world
    touched = {partition for writer, partition in world.ongoing if writer == request.writer}
    for partition in sorted(touched - without):
        world = world.with_log(partition, ended(partition, world.log(partition), request))
    mine = {(request.writer, partition) for partition in touched}
    later = frozenset() if are_lost else frozenset((request, name) for name in touched & without)
    return world._replace(ongoing=world.ongoing - mine, markers=world.markers | later)


def fence(
    world: Shared, writer: str, without: frozenset[str] = frozenset(), *, are_lost: bool = False
) -> Shared:
    """``init_transactions`` of an id: its open transaction is aborted, its older requests mean nothing any more. The
    coordinator does the same when a transaction times out."""
    epoch = world.epoch(writer)
    request = EndTxn(epoch, commits=False, writer=writer)
    world = end_transaction(world, request, without, are_lost=are_lost)
    epochs = {**dict(world.epochs), writer: epoch + 1}
    late = frozenset(request for request in world.late if request.writer != writer)
    return world._replace(epochs=tuple(sorted(epochs.items())), late=late)


def group_of(task: str) -> str:
    """Where the group keeps the offset of a task's input."""
    return f"{GROUP}-{task}"


def is_pending(world: Shared, task: str) -> bool:
    """True while an undecided transaction holds an offset of this task's input."""
    return any(entry.status == OPEN for entry in world.log(group_of(task)).entries)


def is_stable(world: Shared, partition: str, target: int) -> bool:
    """True when everything before ``target`` is decided."""
    return stable_next(world.log(partition)) >= target
