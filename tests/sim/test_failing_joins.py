"""Joins whose function fails for a pair: the policy sees to that pair, and what else comes is as if it were none."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import ProcessingError
from stateflow.testing import TestDriver
from tests.sim.test_tables import newest

T0 = 1_704_067_200_000
SECOND = timedelta(seconds=1)
POLICIES: list[Any] = [sf.Skip(), sf.DeadLetter("dead"), sf.Retry(2, then=sf.DeadLetter("dead"))]


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


# --- tables -------------------------------------------------------------------------------------------------


def tagged(value: str) -> str:
    """Fails for a value of the letter d."""
    if value[0] == "d":
        raise ValueError("as was asked")
    return value


def held_by(how: str, lefts: dict[str, str], rights: dict[str, str]) -> dict[str, str]:
    """What a join of tables of these rows holds, those left out that fail."""
    found = {}
    for key in {**lefts, **rights}:
        left, right = lefts.get(key), rights.get(key)
        if (left is None and how != "outer_join") or (right is None and how == "join"):
            continue
        if not (left and right and left[0] == right[0]):
            found[key] = f"{left}+{right}"
    return found


@pytest.mark.parametrize("how", ["join", "left_join", "outer_join"])
@pytest.mark.parametrize("seed", range(4))
def test_tables_hold_the_join_of_their_contents_whatever_fails_between(how: str, seed: int) -> None:
    """In whichever order they are read, and with what else is computed of the join: a join, groups, a stream."""
    rng = random.Random(f"tables-{how}-{seed}")
    policy = rng.choice(POLICIES)
    app, lefts, rights, out = two_topics()
    thirds, asked = app.topic("thirds", key=str, value=str), app.topic("asked", key=str, value=str)
    all_three, counts = app.topic("all", key=str, value=str), app.topic("counts", key=str, value=int)
    answers = app.topic("answers", key=str, value=str)
    left = app.table(lefts, name="lefts-kept").map(tagged, value=str, on_error=policy)
    right = app.table(rights, name="rights-kept").filter(tagged, on_error=policy)
    both: sf.Table[str, str] = getattr(left, how)(right, paired, name="both", on_error=policy)
    both.to(out)
    both.left_join(app.table(thirds, name="thirds-kept"), lambda one, two: f"{one}/{two}", name="all").to(
        all_three
    )
    both.group_by(lambda value: value[:1], name="by-first", key=str).count(name="n").to(counts)
    app.stream(asked).left_join(both, lambda _, found: str(found), name="answers", value=str).to(answers)
    driver = TestDriver(app, partitions=2, poll_records=rng.choice((None, 1)))
    held: list[dict[str, str]] = [{}, {}, {}]
    topics = (lefts, rights, thirds)
    for _ in range(40):
        number = rng.choice((0, 1, 0, 1, 2))
        rows: list[tuple[str, str | None, int]] = [
            (f"k{rng.randrange(3)}", rng.choice((None, "a", "b", "c", "d")), T0)
            for _ in range(rng.choice((1, 4)))
        ]
        driver.send_many(topics[number], rows)
        for key, value, _ in rows:
            held[number].pop(key, None)
            if value is not None:
                held[number][key] = value
        if rng.random() < 0.1:
            driver.crash(disk_lost=rng.random() < 0.5)
            driver.restore()
        good = [{key: value for key, value in rows.items() if value != "d"} for rows in held[:2]]
        joined = held_by(how, *good)
        assert newest(driver.output(out)) == joined
    assert newest(driver.output(all_three)) == {
        key: f"{value}/{held[2].get(key)}" for key, value in joined.items()
    }
    assert newest(driver.output(counts)) == dict(Counter(value[:1] for value in joined.values()))
    for key in ("k0", "k1", "k2"):
        driver.send(asked, "?", key=key)
    assert newest(driver.output(answers)) == {key: str(joined.get(key)) for key in ("k0", "k1", "k2")}


@pytest.mark.parametrize("how", ["join", "left_join", "outer_join"])
@pytest.mark.parametrize("poll_records", [None, 1])
def test_tables_computed_of_one_hold_the_join_of_their_contents(how: str, poll_records: int | None) -> None:
    rng = random.Random(how)
    app, lefts, _, out = two_topics()
    table = app.table(lefts, name="kept", co_partitioned=True)
    seconds = table.map(lambda value: value[1:], value=str)
    getattr(table, how)(seconds, paired, name="both", on_error=sf.Skip(), value=str).to(out)
    driver = TestDriver(app, partitions=1, poll_records=poll_records)
    held: dict[str, str] = {}
    for _ in range(30):
        rows = [(f"k{rng.randrange(2)}", rng.choice((None, "ab", "aa", "ba", "bb")), T0) for _ in range(3)]
        driver.send_many(lefts, rows)
        held |= {key: value or "" for key, value, _ in rows}
        good = {key: value for key, value in held.items() if value and value[0] != value[1]}
        assert newest(driver.output(out)) == {key: f"{value}+{value[1:]}" for key, value in good.items()}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_dead_letter_names_the_record_whose_value_failed_and_no_other(
    policy: sf.Skip | sf.DeadLetter,
) -> None:
    app, lefts, rights, out = two_topics()
    joined = app.table(lefts, name="lefts-kept").join(
        app.table(rights, name="rights-kept"), paired, name="both", on_error=policy
    )
    joined.to(out)
    driver = TestDriver(app, partitions=1)
    driver.send(rights, "r", key="k")
    for value in ("a", "bad", "c", "bad"):
        driver.send(lefts, value, key="k")
    assert [row.value for row in driver.rows(out)] == ["a+r", None, "c+r", None]
    driver.send(rights, None, key="k")
    driver.send(lefts, "d", key="k")
    if policy != sf.Skip():
        tried = b"3" if isinstance(policy, sf.Retry) else b"1"
        assert [attempts for _, attempts in letters(driver, app)] == [tried] * 2


# --- streams with tables ------------------------------------------------------------------------------------


@pytest.mark.parametrize("grace", [None, SECOND])
def test_a_stream_meets_no_value_that_fails(grace: timedelta | None) -> None:
    """It is as if a filter had taken it out; no other record is lost with the one that asks."""
    app, lefts, rights, out = two_topics()
    table = app.table(rights, name="kept", history=None if grace is None else 10 * SECOND)
    values = table.map(tagged, value=str, on_error=sf.Skip())
    stream = app.stream(lefts)
    if grace is None:
        joined = stream.left_join(values, paired, name="pairs", on_error=sf.Skip())
    else:
        joined = stream.left_join(values, paired, name="pairs", on_error=sf.Skip(), grace=grace)
    joined.to(out)
    driver = TestDriver(app, partitions=1)
    driver.send_many(rights, [("k", "d", T0), ("m", "x", T0)])
    driver.send_many(lefts, [("k", "a", T0), ("m", "b", T0), ("m", "x", T0), ("k", "c", T0), ("m", "c", T0)])
    driver.end_input()
    assert sorted(row.value for row in driver.rows(out)) == ["a+None", "b+x", "c+None", "c+x"]
