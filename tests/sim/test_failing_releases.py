"""A timer that passes on several records at once, of which one fails: that one is let go, and none of the others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import ProcessingError
from stateflow.testing import TestDriver

T0 = 1_704_067_200_000
SECOND = timedelta(seconds=1)


def paired(left: str | None, right: str | None) -> str:
    if "bad" in (left, right):
        raise ValueError("as was asked")
    return f"{left}+{right}"


def two_topics() -> tuple[sf.App, sf.Topic[str, str], sf.Topic[str, str], sf.Topic[str, str]]:
    app = sf.App("x")
    lefts, rights, out = (app.topic(name, key=str, value=str) for name in ("lefts", "rights", "out"))
    return app, lefts, rights, out


def values(driver: TestDriver, topic: sf.Topic[str, str]) -> list[tuple[str, int]]:
    return [(row.value, row.timestamp_ms - T0) for row in driver.rows(topic)]


def letters(driver: TestDriver, app: sf.App) -> list[bytes]:
    return [dict(each.headers)["sf-error-class"] for each in driver.output(app.topic("dead"))]


@pytest.mark.parametrize(
    "policy", [sf.Skip(), sf.DeadLetter("dead"), sf.Retry(2, then=sf.DeadLetter("dead"))]
)
@pytest.mark.parametrize("how", ["left", "outer"])
def test_an_interval_join_passes_on_the_other_unmatched_records(how: str, policy: Any) -> None:
    app, lefts, rights, out = two_topics()
    left, right = app.stream(lefts), app.stream(rights)
    joins: dict[str, Any] = {"left": left.left_join, "outer": left.outer_join}
    joins[how](right, paired, name="pairs", within=sf.Within(SECOND, SECOND), on_error=policy).to(out)
    driver = TestDriver(app, partitions=1)
    driver.send_many(lefts, [("k", "bad", T0), ("k", "one", T0 + 100), ("k", "two", T0 + 4_000)])
    driver.end_input()
    assert values(driver, out) == [("one+None", 100), ("two+None", 4_000)]
    assert driver.state("pairs-left", key="k") is None, "nothing waits for ever"
    assert driver.state("pairs-timers", key="k") is None
    if policy != sf.Skip():
        assert letters(driver, app) == [b"ValueError"]


def test_a_join_as_of_passes_on_the_other_records() -> None:
    app, lefts, rights, out = two_topics()
    table = app.table(rights, name="table", history=10 * SECOND)
    joined = app.stream(lefts).left_join(
        table, paired, name="pairs", grace=SECOND, on_error=sf.DeadLetter("dead")
    )
    joined.to(out)
    driver = TestDriver(app, partitions=1)
    driver.send_many(lefts, [("k", "one", T0), ("k", "bad", T0), ("k", "two", T0), ("k", "three", T0 + 300)])
    driver.end_input()
    assert values(driver, out) == [("one+None", 0), ("two+None", 0), ("three+None", 300)]
    assert driver.state("pairs-waiting", key="k") is None
    assert letters(driver, app) == [b"ValueError"]


def rank(value: str) -> Any:
    if value == "bad":
        raise ValueError("as was asked")
    return 1 if value == "number" else value


def test_a_tie_break_that_fails_lets_its_record_go() -> None:
    app, lefts, _, out = two_topics()
    app.stream(lefts).key_by(lambda _: "k", name="by").in_order(
        name="sorted", tie_break=rank, on_error=sf.DeadLetter("dead")
    ).to(out)
    driver = TestDriver(app, partitions=1)
    driver.send_many(lefts, [("k", value, T0) for value in ("c", "bad", "a", "b")])
    driver.end_input()
    assert values(driver, out) == [("a", 0), ("b", 0), ("c", 0)]
    assert letters(driver, app) == [b"ValueError"]


def test_ranks_that_cannot_be_compared_let_the_records_of_their_time_go() -> None:
    app, lefts, _, out = two_topics()
    ordered = app.stream(lefts).key_by(lambda _: "k", name="by")
    ordered.in_order(name="sorted", tie_break=rank, on_error=sf.DeadLetter("dead")).to(out)
    driver = TestDriver(app, partitions=1)
    driver.send_many(lefts, [("k", "a", T0), ("k", "number", T0), ("k", "b", T0 + 1)])
    driver.end_input()
    assert values(driver, out) == [("b", 1)]
    assert letters(driver, app) == [b"TypeError", b"TypeError"], "each is told of"


def test_with_fail_the_task_stops_and_says_which_key() -> None:
    app, lefts, rights, out = two_topics()
    within = sf.Within(SECOND, SECOND)
    app.stream(lefts).left_join(app.stream(rights), paired, name="pairs", within=within).to(out)
    driver = TestDriver(app, partitions=1)
    driver.send_many(lefts, [("k", "bad", T0)])
    with pytest.raises(
        ProcessingError, match="a left record of the key 'k' without a partner: ValueError: as was asked"
    ):
        driver.end_input()
