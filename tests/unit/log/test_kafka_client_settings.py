"""What the user's own client settings do to each kind of client."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from stateflow.log.kafka.settings import (
    KafkaOptions,
    Settings,
    admin_settings,
    member_settings,
    reader_settings,
    writer_settings,
)

OWN = {"transaction.timeout.ms": 10_000, "client.rack": "a"}


def test_a_transaction_timeout_of_the_users_own_wins_and_bounds_delivery_too() -> None:
    made = writer_settings("b:1", OWN, KafkaOptions(), "t")
    assert (made["transaction.timeout.ms"], made["message.timeout.ms"]) == (10_000, 10_000)
    assert writer_settings("b:1", {}, KafkaOptions(), "t")["transaction.timeout.ms"] == 60_000


def test_clients_that_know_no_transactions_are_not_told_of_the_timeout() -> None:
    options = KafkaOptions()
    for made in (
        admin_settings("b:1", OWN),
        reader_settings("b:1", OWN, options),
        member_settings("b:1", OWN, options, "g", None),
    ):
        assert "transaction.timeout.ms" not in made
        assert made["client.rack"] == "a"


def every_kind(settings: Mapping[str, object]) -> list[Settings]:
    """The settings of every kind of client."""
    options = KafkaOptions()
    return [
        admin_settings("b:1", settings),
        reader_settings("b:1", settings, options),
        member_settings("b:1", settings, options, "g", "m"),
        writer_settings("b:1", settings, options, None),
        writer_settings("b:1", settings, options, "t"),
    ]


@pytest.mark.parametrize(
    ("own", "longest_ms"),
    [
        ({}, 1_000),
        ({"reconnect.backoff.ms": 50}, 1_000),
        ({"reconnect.backoff.ms": "5000"}, 5_000),  # the client takes no longest pause below the first one
        ({"reconnect.backoff.max.ms": 20_000}, 20_000),
    ],
)
def test_a_broker_that_is_back_is_found_within_a_second(own: dict[str, object], longest_ms: int) -> None:
    """The client's own default of 10 s is how long commits and heartbeats waited after a short outage."""
    assert [made["reconnect.backoff.max.ms"] for made in every_kind(own)] == [longest_ms] * 5
