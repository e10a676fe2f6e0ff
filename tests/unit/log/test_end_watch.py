"""When it is known how often a transaction was ended."""

from __future__ import annotations

import json

import pytest

from stateflow.log.kafka.end_watch import EndWatch, interval_beside, sent_once_seconds
from stateflow.log.kafka.settings import KafkaOptions, writer_settings


def statistics(end_txn_total: int | None) -> str:
    requests = {"Produce": 7} if end_txn_total is None else {"EndTxn": end_txn_total}
    return json.dumps({"brokers": {"b:9092/1": {"req": {}}, "TxnCoordinator": {"req": requests}}})


def test_a_new_producer_has_nothing_to_wait_for() -> None:
    assert EndWatch().is_outcome_known


def test_the_statistics_that_were_under_way_do_not_count() -> None:
    watch = EndWatch()
    watch.ended()
    watch.take(statistics(None))
    too_early = watch.is_outcome_known
    watch.take(statistics(1))
    assert (too_early, watch.is_outcome_known) == (False, True)
    assert not watch.is_suspect


def test_a_second_request_for_one_end_is_suspect_for_ever() -> None:
    watch = EndWatch()
    for total in (1, 3, 4):
        watch.ended()
        watch.take(statistics(total))
        watch.take(statistics(total))
        assert watch.is_suspect is (total > 1)


def test_an_empty_transaction_ends_without_a_request() -> None:
    watch = EndWatch()
    watch.ended()
    for _ in range(2):
        watch.take(statistics(None))
    assert watch.is_outcome_known
    assert not watch.is_suspect


def test_what_is_told_of_topics_does_not_count() -> None:
    told = {
        "brokers": {"b:9092/1": {"req": {"EndTxn": 1}}, "TxnCoordinator": {"req": {"Produce": 1}}},
        "topics": {"EndTxn": {"topic": "EndTxn", "EndTxn": 99}},
    }
    watch = EndWatch()
    for separators in ((",", ":"), (", ", ": ")):
        watch.ended()
        watch.take(json.dumps(told, separators=separators))
        watch.take(json.dumps(told, separators=separators))
        assert watch.is_outcome_known
        assert not watch.is_suspect


def test_an_end_that_was_asked_for_once_lets_the_next_begin_at_once_and_is_counted_all_the_same() -> None:
    watch = EndWatch()
    for _ in range(3):
        watch.ended(sent_once=True)
        assert watch.is_outcome_known
    watch.take(statistics(2))  # drawn up before the third
    watch.take(statistics(3))
    assert watch.is_outcome_known
    assert not watch.is_suspect


def test_what_time_promised_and_numbers_refute_is_suspect() -> None:
    watch = EndWatch()
    watch.ended(sent_once=True)
    watch.take(statistics(1))
    watch.take(statistics(2))
    assert watch.is_suspect


def test_one_in_doubt_behind_some_that_were_not_is_told_by_the_number_of_all() -> None:
    for requests, suspect in ((3, False), (4, True)):
        watch = EndWatch()
        watch.ended(sent_once=True)
        watch.ended(sent_once=True)
        watch.ended()
        assert not watch.is_outcome_known
        watch.take(statistics(2))
        watch.take(statistics(requests))
        assert (watch.is_outcome_known, watch.is_suspect) == (True, suspect)


def test_nothing_is_counted_while_an_end_is_on_its_way() -> None:
    """Whether it is in the number already cannot be seen: it was taken for a second request for the one before."""
    watch = EndWatch()
    for total in (1, 2):
        watch.ending()
        for _ in range(3):
            watch.take(statistics(total))
        watch.ended(sent_once=True)
        assert not watch.is_suspect
    watch.ending()
    for _ in range(3):
        watch.take(statistics(2))
    watch.ended(sent_once=True)
    for _ in range(2):
        watch.take(statistics(3))
    assert not watch.is_suspect


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({}, 0.4),
        ({"retry.backoff.ms": "50"}, 0.04),
        ({"retry.backoff.ms": 5_000}, 1.0),
        ({"retry.backoff.ms": 300, "retry.backoff.max.ms": 100}, 0.1),
    ],
)
def test_the_time_within_which_nothing_is_sent_again_is_that_of_the_settings_in_force(
    given: dict[str, object], seconds: float
) -> None:
    assert sent_once_seconds(writer_settings("b:9092", given, KafkaOptions(), "id")) == pytest.approx(seconds)


def test_the_more_writers_the_rarer_their_statistics_and_beyond_some_none() -> None:
    intervals = [interval_beside(500, writers) for writers in (0, 7, 8, 16, 63, 64, 1_000)]
    assert intervals == [500, 500, 500, 1_000, 3_937, 0, 0]
