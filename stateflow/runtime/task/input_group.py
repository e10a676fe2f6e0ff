"""Where a task's input offsets are committed, and what proves that its host may."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from stateflow.log.base import Committed, GroupMetadata
from stateflow.record import TopicPartition


class InputGroup(Protocol):
    """A live group member, or a group without members (Spark tasks)."""

    def metadata(self) -> GroupMetadata | None:
        """Proof of membership, or None for a group without members. Only the thread that polls may ask."""
        ...

    def renewed(self, proof: GroupMetadata) -> GroupMetadata:
        """The proof as of now if it is the same member's, else the one given. On any thread."""
        ...

    def commit(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit outside a transaction. Only the thread that polls may ask."""
        ...


Proof = Callable[[], GroupMetadata | None]
"""Asked for once, just before the offsets are sent."""


class CommitProof:
    """The proof of membership of one commit: begun on the thread that polls, renewed where offsets are sent.

    A rebalance between the two makes the first one stale, though the member has kept its tasks. What it was begun with
    is what it stays with, however, once the member has been put out of the group (a new one has another id, and others
    may have had its tasks in between), or once ``is_held`` says that its host has let go of tasks. Brokers refuse that.
    """

    def __init__(self, group: InputGroup, is_held: Callable[[], bool] = lambda: True) -> None:
        self._group = group
        self._is_held = is_held
        self._begun = group.metadata()

    def __call__(self) -> GroupMetadata | None:
        """The newest that may be had; None for a group without members."""
        if self._begun is None or not self._is_held():
            return self._begun
        return self._group.renewed(self._begun)
