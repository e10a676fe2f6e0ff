"""Joins whose function fails for a pair: the policy sees to that pair, and what else comes is as if it were none."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import pytest

import stateflow as sf
from stateflow.errors import ProcessingError
from stateflow.testing import TestDriver

T0 = 1_704_067_200_000
SECOND = timedelta(seconds=1)
POLICIES = [sf.Skip(), sf.DeadLetter("dead"), sf.Retry(2, then=sf.DeadLetter("dead"))]


def paired(left: str | None, right: str | None) -> str:
    """Fails where both begin with the same letter, and for one that is bad by itself."""
    if "bad" in (left, right) or (left and right and left[0] == right[0]):
        raise ValueError("as was asked")
    return f"{left}+{right}"


def two_topics() -> tuple[sf.App, sf.Topic[str, str], sf.Topic[str, str], sf.Topic[str, str]]:
    app = sf.App("x")
    lefts, rights, out = (app.topic(name, key=str, value=str) for name in ("lefts", "rights", "out"))
    return app, lefts, rights, out


def letters(driver: TestDriver, app: sf.App) -> list[tuple[bytes | None, bytes]]:
    """The values of the dead letters, and how often each was tried."""
    return [(each.value, dict(each.headers)["sf-attempts"]) for each in driver.output(app.topic("dead"))]


# --- two streams --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("poll_records", [None, 1])
@pytest.mark.parametrize("how", ["join", "left_join", "outer_join"])
@pytest.mark.parametrize("seed", range(3))
def test_streams_lose_the_pair_alone_whichever_side_is_read_first(
    how: str, seed: int, poll_records: int | None
) -> None:
    rng = random.Random(f"{how}-{seed}")
    app, lefts, rights, out = two_topics()
    policy = rng.choice(POLICIES)
    within = sf.Within(2 * SECOND)
    left = app.stream(lefts, co_partitioned=True)
    getattr(left, how)(
        app.stream(rights, co_partitioned=True), paired, name="pairs", within=within, on_error=policy
    ).to(out)
    driver = TestDriver(app, partitions=1, poll_records=poll_records)
    sent: dict[str, list[tuple[str, str, int]]] = {"left": [], "right": []}
    for number in range(40):
        side = rng.choice(("left", "right"))
        at_ms = T0 + number * 100
        sent[side].append((f"k{rng.randrange(2)}", f"{rng.choice('abc')}{number}", at_ms))
    blocks = [(side, rows[at : at + 7]) for side, rows in sent.items() for at in range(0, len(rows), 7)]
    for side, rows in sorted(blocks, key=lambda block: (block[1][0][2] if seed else 0, block[0])):
        driver.send_many(lefts if side == "left" else rights, rows)
    driver.end_input()

    found: Counter[str] = Counter()
    failed = 0
    met: set[str] = set()
    for key, one, at_ms in sent["left"]:
        for other_key, two, other_ms in sent["right"]:
            if key == other_key and abs(at_ms - other_ms) <= 2_000:
                met |= {one, two}
                if one[0] == two[0]:
                    failed += 1
                else:
                    found[f"{one}+{two}"] += 1
    if how != "join":
        found.update(f"{one}+None" for _, one, _ in sent["left"] if one not in met)
    if how == "outer_join":
        found.update(f"None+{two}" for _, two, _ in sent["right"] if two not in met)
    assert failed > 5
    assert Counter(row.value for row in driver.rows(out)) == found
    if policy != sf.Skip():
        tried = b"3" if isinstance(policy, sf.Retry) else b"1"
        assert [attempts for _, attempts in letters(driver, app)] == [tried] * failed, "one for each pair"


@pytest.mark.parametrize("how", ["join", "outer_join"])
def test_what_cannot_be_stored_meets_nothing_whichever_side_is_read_first(how: str) -> None:
    told = []
    for sides in ("lr", "rl"):
        app = sf.App("x")
        numbers, names = app.topic("numbers", key=str, value=int), app.topic("names", key=str, value=str)
        out = app.topic("out", key=str, value=str)
        left = app.stream(numbers).map(lambda number: number << 64 if number == 7 else number, value=int)
        getattr(left, how)(
            app.stream(names), lambda a, b: f"{a}+{b}", name="pairs", within=SECOND, on_error=sf.Skip()
        ).to(out)
        driver = TestDriver(app, partitions=1)
        for side in sides:
            if side == "l":
                driver.send_many(numbers, [("k", number, T0) for number in (6, 7, 8)])
            else:
                driver.send(names, "n", key="k", timestamp_ms=T0)
        driver.end_input()
        told.append(sorted(row.value for row in driver.rows(out)))
    assert told == [["6+n", "8+n"]] * 2


def test_with_fail_a_pair_stops_the_task_and_names_the_record() -> None:
    app, lefts, rights, out = two_topics()
    app.stream(lefts, co_partitioned=True).join(
        app.stream(rights, co_partitioned=True), paired, name="pairs", within=SECOND
    ).to(out)
    driver = TestDriver(app, partitions=1)
    driver.send_many(lefts, [("k", "a", T0), ("k", "b", T0)])
    with pytest.raises(ProcessingError, match=r"'pairs' at rights\[0\] offset 1: ValueError: as was asked"):
        driver.send_many(rights, [("k", "c", T0), ("k", "b", T0)])
