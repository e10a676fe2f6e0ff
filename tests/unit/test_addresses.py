"""Addresses of brokers: malformed ones are refused before anybody is asked."""

from __future__ import annotations

import pytest

from stateflow.addresses import check_addresses, first_address
from stateflow.config import AppOptions, resolve
from stateflow.errors import ConfigError
from stateflow.log.kafka import connect


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("localhost:9092", ("localhost", 9092)),
        ("a:1, b:65535", ("a", 1)),
        ("kafka", ("kafka", 9092)),
        (":9093", ("localhost", 9093)),
        ("[::1]:9092", ("::1", 9092)),
        ("SASL_SSL://kafka.example:9094", ("kafka.example", 9094)),
        ("a:1,", ("a", 1)),
    ],
)
def test_addresses_as_the_client_takes_them(text: str, first: tuple[str, int]) -> None:
    check_addresses(text, "given")
    assert first_address(text) == first


@pytest.mark.parametrize(
    "text", ["a:65536", "a:99999", "a:0", "a:-1", "a:abc", "a:", "a:1,b:70000", "", ",", "a b", "x:1:2"]
)
def test_what_can_be_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="brokers cannot be") as raised:
        check_addresses(text, "given")
    assert "localhost:9092" in str(raised.value.action)
    with pytest.raises(ConfigError):
        connect(text)


def test_a_setting_says_where_it_comes_from() -> None:
    with pytest.raises(ConfigError, match=r"environment STATEFLOW_BROKERS\): '70000' is no port"):
        resolve("shop", AppOptions(), {}, {"STATEFLOW_BROKERS": "kafka:70000"})


def test_brokers_among_the_clients_settings_are_told_where_they_belong() -> None:
    with pytest.raises(
        ConfigError, match=r"bootstrap\.servers.*STATEFLOW_CLIENT__BOOTSTRAP_SERVERS"
    ) as raised:
        resolve("shop", AppOptions(), {}, {"STATEFLOW_CLIENT__BOOTSTRAP_SERVERS": "kafka:9092"})
    assert "STATEFLOW_BROKERS" in str(raised.value.action)
