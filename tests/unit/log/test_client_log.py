"""What the client library says again and again is written once a minute."""

from __future__ import annotations

import logging
import time

import pytest

from stateflow.log.kafka.client_log import REPEAT_SECONDS, Unrepeated

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
