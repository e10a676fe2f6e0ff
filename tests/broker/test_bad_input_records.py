"""Records that cannot be decoded or processed: fail, skip, dead letter; and input that retention removed."""

from __future__ import annotations

import signal

import pytest

from stateflow.record import TopicPartition
from tests.broker.command_site import Site
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

HOSTILE = [b"", b"\x00", b"\xff" * 7, b"\x80" * 900_000, "\N{SNOWMAN}".encode() * 3]
"""None of them is eight bytes long, so none is a 64-bit integer."""


def test_fail_stops_at_the_record_and_goes_on_there_when_it_is_mended(site: Site) -> None:
    site.topic("in", "out", "dead")
    site.feed([1, 11, b"no number", 21])
    ended = site.drained(None, "--json")
    assert ended.code == 20
    assert ended.error["error"] == "DecodeError"
    assert ended.error["fields"]["topic"] == f"{site.name}-in"
    assert (ended.error["fields"]["partition"], ended.error["fields"]["offset"]) == (0, 2)
    assert "DeadLetter" in ended.error["action"] or "on_error" in ended.error["action"]
    assert site.counted() in ({}, {1: 1}, {1: 2}), "something behind the bad record was processed"

    site.set(DIGITS_ON_ERROR="skip")
    assert site.drained().code == 0
    assert site.counted() == {1: 3}


def test_dead_letters_are_kept_as_they_came_and_the_rest_is_counted(site: Site) -> None:
    site.topic("in", "out", "dead")
    site.set(DIGITS_ON_ERROR="dead-letter")
    site.feed([1, *HOSTILE, 11])
    assert site.drained().code == 0
    assert site.counted() == {1: 2}
    dead = site.records("dead")
    assert [letter.value for letter in dead] == HOSTILE
    headers = [dict(letter.headers) for letter in dead]
    assert [header["sf-offset"] for header in headers] == [b"1", b"2", b"3", b"4", b"5"]
    assert {header["sf-error-class"] for header in headers} == {b"DecodeError"}


def test_code_that_raises_names_step_record_and_cause(site: Site) -> None:
    site.topic("in", "out", "dead")
    site.set(DIGITS_CHANGE="raises")
    site.feed([3, 13])
    ended = site.drained(None, "--json")
    assert ended.code == 22
    assert "LookupError: no thirteens here" in ended.error["message"]
    assert ended.error["fields"]["offset"] == 1
    assert "on_error" in ended.error["action"]
    assert "digits.py:" in ended.error["fields"]["raised_at"]
    shown = ended.error["fields"]["traceback"].splitlines()
    assert [line.rpartition(", ")[2] for line in shown if line.startswith("  File")] == ["in last_digit"]
    assert shown[-1] == "LookupError: no thirteens here"


def test_input_that_retention_removed_is_not_skipped_in_silence(site: Site) -> None:
    site.topic("in", "out", "dead")
    site.feed([1, 2])
    assert site.drained().code == 0
    site.feed([3, 4, 5])
    site.cluster.trim({TopicPartition(f"{site.name}-in", 0): 4})
    ended = site.drained(None, "--json")
    assert ended.code == 14
    fields = ended.error["fields"]
    assert (fields["topic"], fields["partition"], fields["low"]) == (f"{site.name}-in", 0, 4)
    assert fields["offset"] <= 3
    assert "reset" in ended.error["action"]

    assert site.type("reset", site.digits, "--to-earliest", "--yes").code == 0
    assert site.drained().code == 0
    assert site.counted() == {1: 1, 2: 1, 5: 1}


def test_input_that_is_removed_from_under_a_worker_is_told_as_at_a_start(site: Site) -> None:
    site.topic("in", "out", "dead")
    site.feed([1, 2])
    worker = site.begin("run", site.digits)
    try:
        wait_until(lambda: site.counted() == {1: 1, 2: 1}, lambda: worker.said, worker.still_runs)
        worker.send(signal.SIGSTOP)
        site.feed([3])  # the answer to the request that waits
        site.feed([4, 5])
        source = TopicPartition(f"{site.name}-in", 0)
        site.cluster.trim({source: site.cluster.ranges([source])[source].offset_next})
        worker.send(signal.SIGCONT)
        assert worker.ended() == 14
    finally:
        worker.close()
    assert "retention removed input that was never processed" in worker.said
    assert "`stateflow reset APP --to-earliest`" in worker.said
