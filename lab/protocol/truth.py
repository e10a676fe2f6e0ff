"""What the models of the commit protocol compare with: the state that the input before a position makes."""

from __future__ import annotations

from functools import cache

from stateflow.changelog.sequences import CommittedEnd, Tail, resolve, tail_of
from stateflow.lab.protocol.world import Log, State, folded, stable_next, visible
from stateflow.record import TopicPartition

SOURCE = TopicPartition("in", 0)
INPUT_KEYS = (b"a", b"b", b"a", b"b", b"b")
"""The input: record i has this key. The state of a key is the list of inputs that it has seen."""


@cache
def processed(position: int) -> tuple[State, ...]:
    """The truth: the stores after the inputs before ``position``."""
    by_key: dict[bytes, bytes] = {}
    for number, key in enumerate(INPUT_KEYS[:position]):
        by_key[key] = by_key.get(key, b"") + bytes([number])
    totals = {b"all": bytes(range(position))} if position else {}
    return tuple(tuple(sorted(store.items())) for store in (by_key, totals))


@cache
def tail(log: Log) -> Tail:
    """The end of a changelog as the library itself sees it."""
    return tail_of(((e.offset, e.key, e.value) for e in visible(log)), stable_next(log))


@cache
def committed_end(changelogs: tuple[tuple[str, Log], ...]) -> CommittedEnd:
    """What the library decides about all changelogs of one task together."""
    return resolve({name: tail(log) for name, log in changelogs})


@cache
def read(log: Log) -> tuple[int, State] | None:
    """What anyone finds who reads one changelog: the input that its last commit is at, and the state; None before
    the first commit of all."""
    end = tail(log)
    if end.last is None:
        return None
    rows = [entry for entry in visible(log) if entry.offset < end.committed_next]
    return end.last.position.offsets[SOURCE], folded({}, rows)


def show(stores: tuple[State, ...]) -> str:
    """For the history of a search."""
    return " and ".join("{" + ", ".join(f"{k.decode()}: {list(v)}" for k, v in s) + "}" for s in stores)
