"""Where librdkafka's own lines go. While brokers are away it has the same to say many times a second."""

from __future__ import annotations

import logging
import re
import time

REPEAT_SECONDS = 60.0
"""A line that was said is not said again before; clients, addresses and durations in it do not count."""
_KINDS_MAX = 1_000
_DIFFERS = re.compile(r"rdkafka#\w+-\d+|\b[\w.-]+:\d+(/\w+)?|\d+")


class Unrepeated(logging.Filter):
    """Lets a warning of one kind pass once in a while, and tells then how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is to be written."""
        kind = _DIFFERS.sub("#", record.getMessage())
        now_seconds = time.monotonic()
        said_seconds, left_out = self._said.get(kind, (float("-inf"), 0))
        if now_seconds - said_seconds < REPEAT_SECONDS:
            self._said[kind] = said_seconds, left_out + 1
            return False
        if len(self._said) > _KINDS_MAX:
            self._said.clear()
        self._said[kind] = now_seconds, 0
        if left_out:
            record.msg, record.args = f"{record.getMessage()} ({left_out} more like it meanwhile)", ()
        return True


client_log = logging.getLogger("stateflow.log.kafka.client")
client_log.addFilter(Unrepeated())
