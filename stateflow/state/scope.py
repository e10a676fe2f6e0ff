"""The record that typed state is being used for."""

from __future__ import annotations


class Scope:
    """Key bytes and times of the current record; every handle of an operator looks at the same one."""

    __slots__ = ("key", "timestamp_ms", "watermark_ms")

    def __init__(self) -> None:
        self.key = b""
        self.timestamp_ms = -1
        self.watermark_ms = -1
