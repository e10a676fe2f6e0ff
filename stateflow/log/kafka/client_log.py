"""Where librdkafka's own lines go. While brokers are away it has the same to say many times a second."""

from __future__ import annotations

import logging
import re
import time

REPEAT_SECONDS = 60.0
"""A line that was said is not said again before; clients, addresses and durations in it do not count."""
_KINDS_MAX = 1_000
_FENCED = re.compile(
    r"(FATAL|TXNERR|ADDPARTS) \[.*"
    r"(fenced by other consumer|fenced by a newer instance|attempted an operation with an old epoch)"
)
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


def quiet_fence(record: logging.LogRecord) -> bool:
    """Let the client's lines about a fence, of a static member or a producer, pass as mere information.

    It is an error of ours to whoever has the client, who tells what comes of it: that another process has the member's
    name, that the member joins again, that the task starts again.
    """
    if _FENCED.match(record.getMessage()):
        record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
        return client_log.isEnabledFor(logging.INFO)
    return True


client_log = logging.getLogger("stateflow.log.kafka.client")
client_log.addFilter(quiet_fence)
client_log.addFilter(Unrepeated())
