"""The world of the protocol model: logs, a coordinator of Kafka's old transaction protocol, one client."""

from __future__ import annotations

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
        return dict(self.logs)[name]


def end_transaction(world: World, request: EndTxn) -> World:
    """The coordinator obeys an EndTxn of the current epoch, whichever transaction it was meant for."""
    if request.epoch != world.epoch:
        return world
    for name in world.ongoing:
        log = world.log(name)
        ended = _committed(name, log) if request.commits else _aborted(log)
        world = set_log(world, name, ended)
    return world._replace(ongoing=frozenset())


def new_epoch(world: World) -> World:
    """The coordinator hands out the next producer epoch; requests of older ones mean nothing any more."""
    return world._replace(epoch=world.epoch + 1, late=frozenset())


def _committed(name: str, log: Log) -> Log:
    entries = tuple(entry._replace(status=COMMITTED) for entry in log.entries)
    # What nobody can tell apart is made equal, so that the search stays small: of the group only the newest
    # offset counts, of the outputs only which are visible, and how often.
    if name == GROUP:
        return Log((entries[-1]._replace(offset=0),), 1)
    if name == OUTPUT:
        ordered = sorted(entries, key=lambda entry: entry.key)
        return Log(tuple(e._replace(offset=i) for i, e in enumerate(ordered)), len(ordered))
    return Log(entries, log.offset_next)


def _aborted(log: Log) -> Log:
    return Log(tuple(entry for entry in log.entries if entry.status == COMMITTED), stable_next(log))


def set_log(world: World, name: str, log: Log) -> World:
    """The world with one partition replaced."""
    return world._replace(logs=tuple((n, log if n == name else old) for n, old in world.logs))


def stable_next(log: Log) -> int:
    """The last stable offset: where the open transaction begins."""
    return next((entry.offset for entry in log.entries if entry.status == OPEN), log.offset_next)


def visible(log: Log) -> list[Entry]:
    """What a read-committed reader gets. One producer writes here, so whatever is open is behind all of
    it."""
    return [entry for entry in log.entries if entry.status == COMMITTED]


def folded(base: dict[bytes, bytes], rows: list[Entry]) -> State:
    """The newest value per key; an empty value removes it."""
    state = dict(base)
    state.update((entry.key, entry.value) for entry in rows if entry.key != COMMIT_KEY)
    return tuple(sorted((key, value) for key, value in state.items() if value))


def spell(send: Send) -> str:
    """For the history of a search."""
    return "its commit record" if send.key == COMMIT_KEY else f"{send.key!r}"
