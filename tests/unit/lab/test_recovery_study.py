"""The windowed word count gives the counts that the study compares with, and the page shows what was found."""

from __future__ import annotations

import random

import stateflow as sf
from stateflow.lab.recovery.failures import FailureResult as Result
from stateflow.lab.recovery.failures import Overhead, intervals_of, modes_of
from stateflow.lab.recovery.measure import RecoveryOptions, RecoveryStudy
from stateflow.lab.recovery.page import recovery_page
from stateflow.lab.recovery.study import RecoveryFindings, full_plan, quick_plan
from stateflow.lab.recovery.word_count import WINDOW_MS, counts_key, counts_topic, word_count
from stateflow.lab.recovery.word_site import Counts, count_words, random_line

T0 = 1_700_000_000_000


def test_what_is_expected_is_what_the_application_counts() -> None:
    rng, expected = random.Random(3), Counts()
    for by_upstream in (False, True):
        app = word_count("words", "lines", by_upstream=by_upstream)
        driver = sf.testing.TestDriver(app, partitions=2)
        expected.clear()
        for number in range(20):
            lines, at_ms = [random_line(rng, 9) for _ in range(5)], T0 + number * WINDOW_MS // 7
            for line in lines:
                driver.send(app.topic("lines", value=str), line, timestamp_ms=at_ms)
            count_words(expected, lines, at_ms)
        told = driver.rows(app.topic(counts_topic("words"), key=counts_key(), value=int))
        assert {(row.key.key, row.key.start_ms): row.value for row in told} == expected


def test_plans_have_every_way_and_every_interval_with_every_load() -> None:
    for plan in (quick_plan(RecoveryOptions()), full_plan(RecoveryOptions())):
        assert [each.mode for each in plan.modes][2:] == ["upstream replay", "source replay"]
        pairs = [(each.keeping.image_seconds, each.rate) for each in plan.by_interval]
        assert len(set(pairs)) == len(pairs) >= 4
        assert all(each.before_seconds > (each.keeping.image_seconds or 0) for each in plan.by_interval)


def test_the_page_and_the_summary_show_what_was_found() -> None:
    found = RecoveryFindings(
        RecoveryStudy(records=10, keys=3, seconds_in_order=2.0, seconds_by_degree={1: 2.0, 2: 1.0})
    )
    runs = [*modes_of(5, 9, 4.0), *intervals_of((1.0, 2.0), (3, 4), 9, 4.0)]
    for number, failure in enumerate(runs):
        result = Result(
            failure=failure,
            running_seconds=1.0,
            recovered_seconds=2.0 + number,
            behind_seconds_p95=0.1,
            lines=7,
            different=0,
            behind=((-1.0, 0.1), (1.0, 3.0)),
        )
        (found.modes if number < 4 else found.by_interval).append(result)
    found.overhead.append(
        Overhead(mode="changelog", words=9, words_per_second=12_345, cpu_seconds_per_million=1.5, different=2)
    )
    page = recovery_page(found)
    assert all(
        text in page for text in ("source replay", "12,345", "every byte equal", "3 lines/s", "right ones: 2")
    )
    assert (found.summary()["equal"], found.summary()["different"]) == (False, 2)
    assert [each["recovered_seconds"] for each in found.summary()["modes"]] == [2.0, 3.0, 4.0, 5.0]
