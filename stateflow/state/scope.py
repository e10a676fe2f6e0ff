"""The record that typed state is being used for."""

from __future__ import annotations

from typing import NoReturn

from stateflow.errors import GraphError


class Scope:
    """Key bytes and times of the current record or timer; every handle of an operator looks at the same one."""

    __slots__ = ("key", "mark_ms", "others_ms", "reached_ms", "timestamp_ms")

    def __init__(self) -> None:
        self.key = b""
        self.timestamp_ms = -1
        self.mark_ms = -1
        """How far event time has come with it, in the source partition that it stems from."""
        self.reached_ms = -1
        """How far it had come at this operator before."""
        self.others_ms = -1
        """How far it has come in all other inputs: what the record may move it to."""

    def leave(self) -> None:
        """No record is worked on any more: whoever still uses a handle would change the state of the last one's key.

        The key is gone, so that this costs nothing where a handle is used.
        """
        self.key = b""
        del self.key

    def __getattr__(self, name: str) -> NoReturn:
        """Of the attribute that ``leave`` has taken away; all others are always there."""
        if name != "key":
            raise AttributeError(name)
        raise GraphError(
            "A state was used while no record is processed, so that it is of no key.",
            action="Use states inside on_record, on_timer and on_every only: do not keep them or the context for later,"
            " and do not hand them to threads.",
        )

    @property
    def watermark_ms(self) -> int:
        """Event time up to which input is complete; it has moved with the current record already."""
        moved_ms = self.mark_ms if self.mark_ms < self.others_ms else self.others_ms
        return moved_ms if moved_ms > self.reached_ms else self.reached_ms

    @property
    def as_of_ms(self) -> int:
        """Event time as of which state is read and written: what has expired by then is absent."""
        return self.mark_ms if self.mark_ms > self.reached_ms else self.reached_ms
