"""Joins and aggregates of tables on random logs, compared with those of Kafka Streams' test driver."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest

from stateflow.cli.main import run
from stateflow.lab.time import joins
from stateflow.lab.time.joins import JOIN_ORACLE, JOINS, asked, fits, join_case, played
from stateflow.lab.time.streams import KafkaStreams, prepare

pytestmark = pytest.mark.slow

SEED = 5
LOGS_PER_JOIN = 10


@pytest.fixture(scope="module")
def streams() -> Iterator[KafkaStreams]:
    with closing(KafkaStreams(prepare(JOIN_ORACLE))) as running:
        yield running


@pytest.mark.parametrize("number", range(len(JOINS)), ids=[" ".join(join) for join in JOINS])
def test_a_join_says_what_kafka_streams_says(streams: KafkaStreams, number: int) -> None:
    results: Counter[str] = Counter()
    for at in range(number, len(JOINS) * LOGS_PER_JOIN, len(JOINS)):
        case = join_case(SEED, at)
        wanted = asked(case, streams)
        assert fits(case, wanted, played(case)), f"log {at}"
        results["rows"] += sum(map(len, wanted.values()))
        results["late"] += case.late
    assert results["rows"] > 20
    assert results["late"] > 0 or case.sides != "stream-stream"


def test_what_differs_is_seen(streams: KafkaStreams) -> None:
    """The logs tell other rules apart."""
    case = join_case(SEED, JOINS.index(("stream-stream", "outer")))
    wanted = asked(case, streams)
    assert not fits(case, wanted, {**wanted, "k0": [*wanted.get("k0", []), ("l0+r0", 0)]})
    assert not fits(case, wanted, {})


def test_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    code = run(["study", "joins", "--logs", "1", "--seed", "3", "--processes", "1", "--json"])
    shown = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert code == 0
    assert (shown["logs"], shown["different"]) == (len(JOINS), 0)
    assert set(shown["by_operator"]) == {" ".join(join) for join in JOINS}


def test_the_command_ends_with_1_when_anything_differs(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joins, "pair", lambda left, right: f"{left}-{right}")
    code = run(["study", "joins", "--logs", "1", "--seed", "3", "--processes", "1", "--json"])
    shown = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert code == 1
    assert shown["different"] == sum(each["different"] for each in shown["by_operator"].values()) > 5
    assert shown["by_operator"]["aggregate inner"]["different"] == 0
