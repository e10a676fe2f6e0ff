"""Patterns: random ones against brute force, what is refused, what is left in state, and what a change of one does."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import CatalogIncompatible, GraphError
from stateflow.lab.operators.pattern_oracle import matches
from stateflow.lab.operators.random_patterns import random_spec
from stateflow.testing import TestDriver

T0 = 1_704_067_200_000
STORES = ("found-order-waiting", "found-order-timers", "found-begun", "found-records", "found-timers")
Steps = sf.PatternSteps[int]


def application(
    pattern: sf.Pattern[int], result: Callable[[sf.Match[int]], list[Any]], **options: Any
) -> tuple[sf.App, sf.Topic[str, int], sf.Topic[str, list[Any]]]:
    app = sf.App("x")
    source, out = app.topic("in", key=str, value=int), app.topic("out", key=str, value=list)
    stream = app.stream(source, co_partitioned=True)
    stream.match(pattern, result, name="found", value=list, **options).to(out)
    return app, source, out


def random_rows(rng: random.Random, count: int) -> list[tuple[str, int, int]]:
    rows, at_ms = [], T0
    for _ in range(count):
        at_ms += rng.choice((0, 200, 500, 1_000, 1_000, 9_000 if rng.random() < 0.2 else 300))
        rows.append((rng.choice("xyz"), rng.randrange(40), at_ms))
    return rows


def check_random_patterns(seeds: range) -> None:
    found = 0
    for seed in seeds:
        rng = random.Random(f"patterns-{seed}")
        spec = random_spec(rng, rng.choice((2_000, 4_000, 8_000)))
        app, source, out = application(spec.pattern(), spec.values, after=spec.after)
        driver = TestDriver(app, partitions=1, poll_records=rng.choice((None, 1, 7)))
        rows = random_rows(rng, 60)
        driver.send_many(source, rows)
        driver.end_input()
        for key in "xyz":
            wanted = matches(spec, [(at_ms, value) for each, value, at_ms in rows if each == key])
            told = [row for row in driver.rows(out) if row.key == key]
            values = [(tuple(map(tuple, row.value)), row.timestamp_ms) for row in told]
            assert values == wanted, (seed, key, spec)
            found += len(wanted)
        assert left_in(driver) == 0, (seed, spec)
    assert found > len(seeds)


def left_in(driver: TestDriver) -> int:
    tasks = driver._worker.tasks.values()
    return sum(len(list(task.context.store(name).scan(b"", None))) for task in tasks for name in STORES)


def test_matches_of_random_patterns_are_those_of_brute_force() -> None:
    check_random_patterns(range(25))


@pytest.mark.slow
def test_matches_of_many_random_patterns_are_those_of_brute_force() -> None:
    check_random_patterns(range(25, 90))


def is_one(value: int) -> bool:
    return value == 1


def is_two(value: int) -> bool:
    return value == 2


def begin() -> Steps:
    return sf.pattern(int).begin("a", is_one)


NEAR = timedelta(seconds=10)


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (lambda: begin().then("a", is_two), "which step 'a' is meant"),
        (lambda: begin().optional(), "with which record a match begins"),
        (
            lambda: begin().then("b").one_or_more(greedy=False).within(NEAR),
            "when a match ends, as the step 'b'",
        ),
        (lambda: begin().then("b").optional(greedy=False).within(NEAR), "when a match ends"),
        (
            lambda: begin().one_or_more(greedy=False).then("b").optional().within(NEAR),
            "when a match ends, as the step 'a'",
        ),
        (lambda: begin().then("b").optional().without(is_two), "where the records without.* begin"),
        (lambda: begin().without(is_two).then("b").optional(), "where the records without.* end"),
        (lambda: begin().without(is_two).next("b"), "Nothing can lie before the step 'b'"),
        (lambda: begin().without().then("b"), "every record is excluded"),
        (lambda: begin().without(is_two).one_or_more(), r"one_or_more\(\) follows without"),
        (lambda: begin().times(2).one_or_more(), "it was said twice"),
        (lambda: begin().then("b").optional(greedy=False).times(2), "it was said in two ways"),
        (lambda: begin().then("b").times(2).optional(greedy=False), "it was said in two ways"),
        (lambda: begin().times(3, 2), "takes 3 to 2 records"),
        (lambda: begin().times(0), "takes 0 to 0 records"),
        (lambda: begin().within(timedelta(0)), "within no time at all"),
        (lambda: begin().within(timedelta(microseconds=1)), "fraction of a millisecond"),
        (lambda: begin().then(""), "is called ''"),
        (lambda: sf.pattern("int"), "A pattern of 'int'"),  # type: ignore[arg-type]
    ],
)
def test_ambiguous_definitions_are_refused_when_they_are_written(
    write: Callable[[], object], told: str
) -> None:
    with pytest.raises(GraphError, match=told):
        write()


@pytest.mark.parametrize(
    ("after", "told"),
    [
        ("first", "go on 'first'"),
        (sf.SkipTo("c"), "has no step 'c'"),
        (sf.SkipTo("b"), "the step 'b' is optional"),
        (sf.SkipTo("a"), "found again for ever"),
        (sf.SkipTo("a", "last"), "found again for ever"),
        (sf.SkipTo("d", "middle"), "no 'middle' record"),  # type: ignore[arg-type]
    ],
)
def test_strategies_that_cannot_be_followed_are_refused(after: Any, told: str) -> None:
    pattern = begin().then("b", is_two).optional().then("d").within(NEAR)
    with pytest.raises(GraphError, match=told):
        application(pattern, lambda match: match.all("a"), after=after)


def test_a_pattern_without_an_end_in_time_is_no_pattern() -> None:
    with pytest.raises(GraphError, match="no pattern as a whole"):
        application(begin().then("b"), lambda match: match.all("a"))  # type: ignore[arg-type]


def test_the_last_record_of_a_first_step_that_took_two_may_begin_the_next_match() -> None:
    pattern = begin().times(2).then("b", is_two).within(NEAR)
    app, source, out = application(pattern, lambda m: [*m.all("a"), m["b"]], after=sf.SkipTo("a", "last"))
    driver = TestDriver(app, partitions=1)
    driver.send_many(source, [("k", value, T0 + n) for n, value in enumerate([1, 1, 2, 1, 2])])
    driver.end_input()
    assert [(row.value, row.timestamp_ms - T0) for row in driver.rows(out)] == [
        ([1, 1, 2], 2),
        ([1, 1, 2], 4),
    ]


def test_what_a_match_gives_and_when_what_was_waited_for_is_said() -> None:
    steps = begin().then("b", is_two).optional().then("c", lambda value: value == 3)
    pattern = steps.without(lambda value: value == 4).within(NEAR)

    def told(match: sf.Match[int]) -> list[Any]:
        with pytest.raises(KeyError):
            match.get("d")
        with pytest.raises(KeyError, match="took no record"):
            match["b"]
        assert (match.get("b"), "b" in match, match["a"]) == (None, False, 1)
        return [match.all("c"), match.first_ms - T0, match.last_ms - T0]

    app, source, out = application(pattern, told)
    driver = TestDriver(app, partitions=1)
    driver.send_many(
        source, [("k", 1, T0), ("k", 3, T0 + 2_000), ("l", 1, T0), ("l", 3, T0 + 1), ("l", 4, T0 + 2)]
    )
    driver.end_input()
    assert [(row.value, row.timestamp_ms - T0) for row in driver.rows(out)] == [([[3], 0, 2_000], 10_000)]


def test_a_condition_that_fails_leaves_its_record_out_and_nothing_else() -> None:
    pattern = begin().then("b", lambda value: 6 // value == 3).within(NEAR)
    app, source, out = application(pattern, lambda m: [m["a"], m["b"]], on_error=sf.Skip())
    driver = TestDriver(app, partitions=1)
    driver.send_many(source, [("k", value, T0 + n) for n, value in enumerate([1, 0, 2])])
    driver.end_input()
    assert [row.value for row in driver.rows(out)] == [[1, 2]]


def test_a_result_that_fails_leaves_its_match_out_and_nothing_else() -> None:
    pattern = begin().then("b").within(NEAR)
    app, source, out = application(pattern, lambda m: [6 // m["b"]], on_error=sf.Skip())
    driver = TestDriver(app, partitions=1)
    driver.send_many(source, [("k", value, T0 + n) for n, value in enumerate([1, 0, 1, 2])])
    driver.end_input()
    assert [row.value for row in driver.rows(out)] == [[3]]


def test_state_of_keys_without_records_goes_with_event_time() -> None:
    app, source, _ = application(begin().then("b", is_two).within(NEAR), lambda m: m.all("a"))
    driver = TestDriver(app, partitions=1)
    driver.send_many(source, [(f"k{n}", 1, T0 + n) for n in range(50)])
    assert left_in(driver) > 50
    driver.advance_event_time(T0 + 60_000)
    assert left_in(driver) == 0


def test_a_pattern_of_another_shape_is_refused_one_with_other_conditions_goes_on() -> None:
    app, source, out = application(begin().then("b", is_two).within(NEAR), lambda m: [m["a"], m["b"]])
    driver = TestDriver(app, partitions=1)
    driver.send_many(source, [("k", 1, T0), ("k", 0, T0 + 1)])
    other, *_ = application(begin().then("b", lambda value: value == 3).within(2 * NEAR), lambda m: [m["b"]])
    driver.upgrade(other)
    driver.send_many(source, [("k", 2, T0 + 2), ("k", 3, T0 + 3)])
    driver.end_input()
    assert [row.value for row in driver.rows(out)] == [[3]]
    shorter, *_ = application(begin().within(NEAR), lambda m: [m["a"]])
    with pytest.raises(CatalogIncompatible, match="found-begun"):
        driver.upgrade(shorter)
