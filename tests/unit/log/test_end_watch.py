"""When it is known how often a transaction was ended."""

from __future__ import annotations

import json

from stateflow.log.kafka.end_watch import EndWatch


def statistics(end_txn_total: int | None) -> str:
    requests = {"Produce": 7} if end_txn_total is None else {"EndTxn": end_txn_total}
    return json.dumps({"brokers": {"b:9092/1": {"req": {}}, "TxnCoordinator": {"req": requests}}})


def test_a_new_producer_has_nothing_to_wait_for() -> None:
    assert EndWatch().is_settled


def test_the_statistics_that_were_under_way_do_not_count() -> None:
    watch = EndWatch()
    watch.ended()
    watch.take(statistics(None))
    too_early = watch.is_settled
    watch.take(statistics(1))
    assert (too_early, watch.is_settled) == (False, True)
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
    assert watch.is_settled
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
        assert watch.is_settled
        assert not watch.is_suspect
