"""Input made to harm: Avro that claims more than it holds, records as large as the broker takes; and secrets."""

from __future__ import annotations

import io
import random
import resource
from pathlib import Path

import fastavro
import pytest

from tests.broker.command_site import Process, Site

pytestmark = pytest.mark.broker

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "shop", "type": "string"},
        {"name": "cents", "type": {"type": "array", "items": "long"}},
        {"name": "picture", "type": "bytes"},
    ],
}
CANARY = "canary-7f3a-hunter2"


def avro(shop: str, picture: bytes = b"") -> bytes:
    """One order as it should be."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, ORDER, {"shop": shop, "cents": [1], "picture": picture})
    return out.getvalue()


HOSTILE = [
    b"\x02a" + b"\xfe" * 9 + b"\x01",  # an array of about 2^62 items
    b"\xfe\xff\xff\xff\x0f",  # a string of two gigabytes in five bytes
    b"\xff" * 10,  # a length that is no number
    avro("a")[:-1],  # cut short
    avro("a") + b"\x00",  # and too long
    b"\x04\xff\xfe\x00\x00\x00",  # a string that is no UTF-8
    b"\x00"
    + random.Random(1).randbytes(1_040_000),  # nearly all that the broker takes, and not to be compressed
]


def test_hostile_avro_goes_to_the_dead_letters_and_costs_no_memory(site: Site) -> None:
    site.topic("in", "out", "dead")
    large = avro("b", bytes(900_000))
    site.feed([avro("a"), *HOSTILE, large, avro("a")])
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert site.drained(site.orders).code == 0
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) / 1024
    assert grown_mib < 300, f"{grown_mib:.0f} MiB for {sum(map(len, HOSTILE)):,} bytes"
    assert [letter.value for letter in site.records("dead")] == HOSTILE
    assert {record.key: record.value for record in site.records("out")} == {b"a": b"2", b"b": b"1"}


@pytest.mark.parametrize(("schema", "word"), [("recursive", "recursive"), ("nothings", "no bytes")])
def test_a_schema_that_small_records_could_use_against_us(site: Site, schema: str, word: str) -> None:
    site.set(ORDERS_SCHEMA=schema)
    ended = site.type("run", site.orders, "--json")
    assert (ended.code, ended.error["error"]) == (2, "ConfigError")
    assert word in ended.error["message"]


def test_a_result_that_is_larger_than_its_topic_takes(site: Site) -> None:
    site.topic("in", "out")
    site.feed([1])
    site.set(DIGITS_CHANGE="large")
    ended = site.drained(None, "--json")
    assert (ended.code, ended.error["error"]) == (17, "BrokerRefused")
    assert f"{site.name}-out" in ended.error["message"]
    assert "max.message.bytes" in ended.error["action"]


def test_records_that_are_too_large_go_to_the_dead_letters_and_the_others_on(site: Site) -> None:
    """One that was read as large as its topic takes, and is larger with the reason; and one that was made here."""
    site.topic("in", "out", "dead")
    largest = random.Random(2).randbytes(1_048_400)
    site.feed([1, largest, 2])
    site.set(DIGITS_CHANGE="large", DIGITS_ON_ERROR="dead-letter")
    assert site.drained(None).code == 0
    assert [record.value for record in site.records("out")] == [b"small"]
    told = {dict(letter.headers)["sf-offset"]: letter for letter in site.records("dead")}
    assert sorted(told) == [b"0", b"1"]
    made, read = dict(told[b"0"].headers), dict(told[b"1"].headers)
    assert made["sf-topic"] == read["sf-topic"] == f"{site.name}-in".encode()
    assert f"larger than the topic '{site.name}-out' takes".encode() in made["sf-error-message"]
    cut = told[b"1"].value
    assert 1_040_000 < len(cut) < len(largest)
    assert largest.startswith(cut)
    assert read["sf-value-bytes"] == b"1048400"


def test_no_command_gives_a_secret_away(site: Site) -> None:
    """A password in the environment, and one in the file, written as TOML likes it: as nested tables."""
    site.set(
        STATEFLOW_CLIENT__SECURITY_PROTOCOL="SASL_PLAINTEXT",
        STATEFLOW_CLIENT__SASL_MECHANISM="PLAIN",
        STATEFLOW_CLIENT__SASL_USERNAME="me",
        STATEFLOW_CLIENT__SASL_PASSWORD=CANARY,
    )
    (site.place / "stateflow.toml").write_text(
        f'[client]\nssl.key.password = "{CANARY}"\nsasl.password = "{CANARY}"\n'
    )
    reading = [
        "config show",
        "describe",
        "topics plan",
        "topics apply",
        "run --dry-run",
        "run --until-drained -v",
    ]
    lines = [
        [*line.split(), site.digits]
        for line in [*reading, "run --workers 2", "reset --yes", "restore", "scale status"]
    ]
    running = [
        Process(site.command(*line), site.place / f"said-{number}") for number, line in enumerate(lines)
    ]
    codes = [process.ended() for process in running]
    said = [process.said for process in running]
    assert codes[:2] == [0, 0], said[:2]
    assert all(code in (2, 10) for code in codes[2:]), list(zip(codes, said, strict=True))
    assert "sasl.password" in said[0], "the setting itself is shown"
    assert "********" in said[0]
    site.set(STATEFLOW_CLIENT__SASL_MECHANISM="NONSENSE", STATEFLOW_CLIENT__SASL_JAAS_CONFIG=CANARY)
    refused = site.type("run", site.digits, "--json")
    assert refused.code == 2
    written = [path for path in site.place.rglob("*") if path.is_file() and path.name != "stateflow.toml"]
    for text in (*said, refused.out, refused.err, *map(read, written)):
        assert CANARY not in text


def read(path: Path) -> str:
    """A file's bytes as text."""
    return path.read_bytes().decode("latin-1")
