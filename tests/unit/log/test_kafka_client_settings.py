"""What the user's own client settings do to each kind of client."""

from __future__ import annotations

from stateflow.log.kafka.settings import (
    KafkaOptions,
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
