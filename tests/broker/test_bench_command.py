"""`stateflow bench` as a person starts it: our side of it; peers need a download."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from stateflow.lab.commands.bench import command
from stateflow.testing.broker import TestBroker

pytestmark = pytest.mark.broker
ROOT = Path(__file__).resolve().parents[2]


def test_the_last_line_compares_two_checkouts_round_by_round(broker: TestBroker) -> None:
    arguments = ["rekey", "--records", "2000", "--keys", "50", "--partitions", "2", "--rounds", "1"]
    more = ["--before", str(ROOT), "--commit-interval", "0.1", "--brokers", broker.bootstrap, "--json"]
    done = CliRunner().invoke(command, [*arguments, *more])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["same_result"] is True
    assert set(found["ratios"]) == set(found["cpu_ratios"]) == {"before"}
    assert found["cpu_seconds_per_million"]["stateflow"] > 0
    assert (found["runs"], found["workload"]["keys"]) == (1, 50)


@pytest.mark.parametrize("work", ["join", "image", "newest", "shuffle", "write"])
def test_our_side_does_each_work(broker: TestBroker, work: str) -> None:
    arguments = [work, "--records", "2000", "--keys", "50", "--partitions", "2", "--rounds", "1", "--json"]
    more = ["--commit-interval", "0.1", "--brokers", broker.bootstrap]
    done = CliRunner().invoke(command, [*arguments, *more])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["sides"]["stateflow"]["records_per_second"] > 0


def test_latency_is_measured_from_sending_to_reading_what_is_committed(broker: TestBroker) -> None:
    size = ["--rate", "200", "--seconds", "1", "--rounds", "1", "--partitions", "1", "--keys", "20"]
    done = CliRunner().invoke(command, ["latency", *size, "--brokers", broker.bootstrap, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.strip().splitlines()[-1])
    ours = found["sides"]["stateflow"]
    assert ours["results"] > 0
    assert 0 < ours["p50_ms"] <= ours["p95_ms"] <= ours["p99_ms"]
    assert (found["runs"], found["workload"]["rate"]) == (1, 200)


@pytest.mark.parametrize("text", ["", "[]", '{"release": "0.1.0"}'])
@pytest.mark.parametrize("option", ["--band", "--update-band"])
def test_a_file_that_is_no_band_is_refused_before_anything_is_measured(
    tmp_path: Path, text: str, option: str
) -> None:
    file = tmp_path / "band.json"
    file.write_text(text)
    done = CliRunner().invoke(command, ["count", option, str(file)])
    assert "is no band file" in str(done.exception)
    assert file.read_text() == text


def test_a_peer_that_has_no_program_for_the_work_is_refused() -> None:
    done = CliRunner().invoke(command, ["restore", "--vs", "quix"])
    assert "has no program for quix" in str(done.exception)
    done = CliRunner().invoke(command, ["count", "--vs", "nobody"])
    assert "no peer called 'nobody'" in str(done.exception)
    done = CliRunner().invoke(command, ["latency", "--vs", "quix"])
    assert "has no program for quix" in str(done.exception)
