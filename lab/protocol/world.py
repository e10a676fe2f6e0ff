"""The world of the protocol model: logs, a coordinator of Kafka's old transaction protocol, one client."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from stateflow.changelog.commit_record import COMMIT_KEY

OPEN, COMMITTED = "open", "committed"
"""An aborted record is taken out of its log at once: no reader can tell the difference."""

OUTPUT, GROUP = "output", "group"


class Entry(NamedTuple):
    """One record in a log."""

    offset: int
    key: bytes
    value: bytes
    status: str
    writer: str = ""
    """Who sent it, where several write to one partition."""


class Log(NamedTuple):
    """One partition."""

    entries: tuple[Entry, ...] = ()
    offset_next: int = 0


class Send(NamedTuple):
    """A record that the client has handed to its library."""

    partition: str
    key: bytes
    value: bytes


State = tuple[tuple[bytes, bytes], ...]
"""Sorted keys and values of one store."""


class Client(NamedTuple):
    """The owner of the task."""

    epoch: int
    """Of its producer."""
    owner: int
    """Of its commit records."""
    sequence: int
    position: int
    """Input that its state contains."""
    stores: tuple[State, ...]
    phase: str = "idle"
    batch: int = 0
    sends: tuple[Send, ...] = ()
    added: frozenset[str] = frozenset()
    retried: bool = False


class Disk(NamedTuple):
    """The local store: content and position per changelog."""

    stores: tuple[State, ...]
    offsets_next: tuple[int, ...]


class EndTxn(NamedTuple):
    """A request under way."""

    epoch: int
    commits: bool
    writer: str = ""
    """Whose it is, where there are several."""


class Left(NamedTuple):
    """Faults that may still happen."""

    retries: int
    duplicates: int
    crashes: int
    aborts: int


class World(NamedTuple):
    """Everything."""

    logs: tuple[tuple[str, Log], ...]
    epoch: int
    ongoing: frozenset[str]
    """Partitions of the transaction that the coordinator has open."""
    late: frozenset[EndTxn]
    client: Client | None
    disk: Disk | None
    left: Left

    def log(self, name: str) -> Log:
        """One partition."""
        for known, log in self.logs:
            if known == name:
                return log
        raise KeyError(name)


def end_transaction(world: World, request: EndTxn) -> World:
    """The coordinator obeys an EndTxn of the current epoch, whichever transaction it was meant for."""
    if request.epoch != world.epoch:
        return world
    for name in world.ongoing:
        world = set_log(world, name, ended(name, world.log(name), request))
    return world._replace(ongoing=frozenset())


def new_epoch(world: World) -> World:
    """The coordinator hands out the next producer epoch; requests of older ones mean nothing any more."""
    return world._replace(epoch=world.epoch + 1, late=frozenset())


@cache
def ended(name: str, log: Log, request: EndTxn) -> Log:
    """One partition once the marker of a writer's transaction has reached it."""

    def is_its(entry: Entry) -> bool:
        return entry.status == OPEN and entry.writer == request.writer

    if not request.commits:
        kept = tuple(entry for entry in log.entries if not is_its(entry))
        return Log(kept, max(log.offset_next if request.writer else 0, kept[-1].offset + 1 if kept else 0))
    entries = tuple(e._replace(status=COMMITTED, writer="") if is_its(e) else e for e in log.entries)
    # What nobody can tell apart is made equal, so that the search stays small: of the group only the newest
    # offset counts, of the outputs only which are visible, and how often.
    if name.startswith(GROUP):
        newest = max((e.offset for e in entries if e.status == COMMITTED), default=0)
        return _numbered(e for e in entries if e.status == OPEN or e.offset == newest)
    if name == OUTPUT:
        return _numbered(sorted(entries, key=lambda entry: (entry.status, entry.key, entry.writer)))
    return Log(entries, log.offset_next)


def _numbered(entries: Iterable[Entry]) -> Log:
    numbered = tuple(entry._replace(offset=i) for i, entry in enumerate(entries))
    return Log(numbered, len(numbered))


def set_log(world: World, name: str, log: Log) -> World:
    """The world with one partition replaced."""
    logs = tuple([(n, log) if n == name else (n, old) for n, old in world.logs])
    return World(logs, *world[1:])


def stable_next(log: Log) -> int:
    """The last stable offset: where the open transaction begins."""
    for entry in log.entries:
        if entry.status == OPEN:
            return entry.offset
    return log.offset_next


@cache
def visible(log: Log) -> tuple[Entry, ...]:
    """What a read-committed reader gets: what is committed before the first open transaction."""
    limit = stable_next(log)
    return tuple([entry for entry in log.entries if entry.status == COMMITTED and entry.offset < limit])


def folded(base: dict[bytes, bytes], rows: Iterable[Entry]) -> State:
    """The newest value per key; an empty value removes it."""
    state = dict(base)
    state.update((entry.key, entry.value) for entry in rows if entry.key != COMMIT_KEY)
    return tuple(sorted((key, value) for key, value in state.items() if value))


def spell(send: Send) -> str:
    """For the history of a search."""
    return "its commit record" if send.key == COMMIT_KEY else f"{send.key!r}"
