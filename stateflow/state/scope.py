"""The record that typed state is being used for."""

from __future__ import annotations


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

    @property
    def watermark_ms(self) -> int:
        """Event time up to which input is complete; it has moved with the current record already."""
        moved_ms = self.mark_ms if self.mark_ms < self.others_ms else self.others_ms
        return moved_ms if moved_ms > self.reached_ms else self.reached_ms

    @property
    def as_of_ms(self) -> int:
        """Event time as of which state is read and written: what has expired by then is absent."""
        return self.mark_ms if self.mark_ms > self.reached_ms else self.reached_ms
