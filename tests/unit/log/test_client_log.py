"""What the client library says again and again is written once a minute."""

from __future__ import annotations

import logging
import time

import pytest

from stateflow.log.kafka.client_log import REPEAT_SECONDS, Unrepeated, client_log, quiet_fence

REFUSED = "FAIL [rdkafka#consumer-{}] [thrd:b-1:{}/bootstrap]: Connect failed: refused (after {}ms in state CONNECT)"


def passed(filtered: Unrepeated, text: str) -> str | None:
    record = logging.LogRecord("client", logging.WARNING, "file", 1, text, (), None)
    return record.getMessage() if filtered.filter(record) else None


def test_a_line_is_said_once_a_minute_whichever_client_and_broker_it_is_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    filtered = Unrepeated()
    assert passed(filtered, REFUSED.format(3, 9092, 0)) == REFUSED.format(3, 9092, 0)
    assert passed(filtered, "something else") == "something else"
    for client in range(100):
        assert passed(filtered, REFUSED.format(client, 9093, 10)) is None
    now[0] = REPEAT_SECONDS
    assert passed(filtered, REFUSED.format(3, 9092, 2)) == (
        REFUSED.format(3, 9092, 2) + " (100 more like it meanwhile)"
    )


FENCED = [
    "FATAL [rdkafka#consumer-1] [thrd:main]: Fatal error: Broker: Static consumer fenced by other consumer with same"
    " group.instance.id: Fatal consumer error",
    'ADDPARTS [rdkafka#producer-1] [thrd:main]: TxnCoordinator/1: Failed to add partition "t" [0] to transaction:'
    " Broker: Producer attempted an operation with an old epoch",
    "TXNERR [rdkafka#producer-1] [thrd:main]: Fatal transaction error: Failed to add partitions to transaction: Local:"
    " This instance has been fenced by a newer instance (_FENCED)",
]


@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING])
@pytest.mark.parametrize("fenced", FENCED)
def test_a_fence_is_told_by_the_client_as_mere_information(level: int, fenced: str) -> None:
    before = client_log.level
    client_log.setLevel(level)
    try:
        for line, level_told in ((fenced, logging.INFO), ("FATAL [rdkafka#c]: another", logging.CRITICAL)):
            record = logging.LogRecord("client", logging.CRITICAL, "file", 1, line, (), None)
            assert quiet_fence(record) == (level_told >= level)
            assert record.levelno == level_told
    finally:
        client_log.setLevel(before)
