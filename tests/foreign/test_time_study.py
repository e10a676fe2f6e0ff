"""The study of time, with Kafka Streams' test driver beside the oracle; a thousand logs where tests may take long."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest

from stateflow.cli.main import run
from stateflow.lab.time import oracle
from stateflow.lab.time.report import TimeReport
from stateflow.lab.time.running import Study, run_study
from stateflow.lab.time.streams import WINDOW_ORACLE, KafkaStreams, prepare
from stateflow.lab.time.study import QUICK_LOGS, case_of, run_case, run_cases

pytestmark = pytest.mark.slow

SEED = 12
LOGS_COMPARED_MIN = 1_000


@pytest.fixture(scope="module")
def streams() -> Iterator[KafkaStreams]:
    with closing(KafkaStreams(prepare())) as running:
        yield running


def test_the_oracle_agrees_with_kafka_streams(streams: KafkaStreams) -> None:
    report = TimeReport()
    for number in range(105):
        run_case(case_of(SEED, number)._replace(plays=()), streams, report)
    assert report.failed == []
    assert report.compared_with_streams == 75
    assert report.late > 100


def test_what_differs_is_told(streams: KafkaStreams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(oracle.STEPS, "count", lambda total, _value: (total or 0) + 2)
    report = TimeReport()
    for number in range(7):
        run_case(case_of(SEED, number), streams, report)
    wrong = {name for name, count in report.wrong.items() if count}
    assert wrong
    assert all(name.startswith("count") for name in wrong)
    assert {name: report.wrong[name] for name in wrong} == {name: report.cases[name] for name in wrong}
    assert 0 < report.different <= report.logs
    assert any("Kafka Streams" in line for line in report.failed)


@pytest.mark.timeout(1200)
def test_a_thousand_logs_are_equal() -> None:
    """Each put through the application one way; `stateflow study time` goes two ways."""
    report = run_study(SEED, range(QUICK_LOGS), Study(WINDOW_ORACLE, partial(run_cases, plays_max=1)))
    assert report.failed == []
    assert report.left_out == []
    assert report.compared_with_streams >= LOGS_COMPARED_MIN
    assert report.acts["kill"] > 100


def test_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    code = run_command("--quick", "--logs", "7", "--seed", "3")
    shown = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert code == 0
    assert (shown["logs"], shown["different"], shown["compared_with_kafka_streams"]) == (7, 0, 5)
    assert shown["seed"] == 3
    assert shown["cases"] == sum(each["cases"] for each in shown["by_operator"].values())


def test_the_command_ends_with_1_when_anything_differs(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(oracle.STEPS, "sum", lambda total, value: (total or 0) - value)
    code = run_command("--logs", "5", "--seed", "3", "--processes", "1")
    shown = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert code == 1
    assert shown["different"] > 0
    assert shown["failed"]


def run_command(*arguments: str) -> int:
    return run(["study", "time", "--json", *arguments])
