"""Aggregates whose functions fail: what is let go, kept and told does not depend on how batches are cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stateflow as sf
from stateflow.testing import TestDriver

T0, SECOND = 1_700_000_040_000, 1_000
TEN, FOUR = timedelta(seconds=10), timedelta(seconds=4)
PER_TEN = sf.WindowedKey(sf.String, 10_000)
WINDOWS: dict[str, tuple[Any, Any]] = {
    "none": (None, str),
    "none, expiring": (None, str),
    "tumbling": (sf.Tumbling(TEN), PER_TEN),
    "tumbling, eventual": (sf.Tumbling(TEN), PER_TEN),
    "hopping": (sf.Hopping(TEN, FOUR), PER_TEN),
    "session": (sf.Session(FOUR), sf.SessionKey(sf.String)),
    "sliding": (sf.Sliding(FOUR), sf.WindowedKey(sf.String, 4_000)),
    "count": (sf.CountWindow(3), sf.CountedKey(sf.String, 3)),
    "count, overlapping": (sf.CountWindow(4, 2), sf.CountedKey(sf.String, 4)),
}
EMITS = ("on_update", "on_close")
HELD = sf.OnClose(max_records=1_000)
KINDS = [
    (kind, emit) for kind, (window, _) in WINDOWS.items() for emit in EMITS[: 1 if window is None else 2]
]
KINDS += [(kind, "held") for kind in ("tumbling", "hopping", "session", "sliding")]


class Refused(Exception):
    """Raised by a result, so that it is told from what an aggregate's other functions raise."""


def _n(value: Any) -> Any:
    return value["n"]


def _sum_of_small(total: int, value: Any) -> int:
    if value["n"] == 3:
        raise ValueError("three")
    return int((total + value["n"]) % 7)


def _listed(kept: list[int], value: Any) -> list[int]:
    """Changes its accumulator before it fails."""
    kept.append(int(value["n"] % 7))
    if value["n"] == 2:
        raise ValueError("two")
    return kept[-4:]


def _shown(total: int) -> int:
    if total in (1, 4):
        raise Refused
    return total * 2


def _shown_list(kept: list[int]) -> list[int]:
    if sum(kept) % 3 == 1:
        raise Refused
    return kept


def _fold(result: Callable[[int], int] | None = None) -> Any:
    options: dict[str, Any] = {} if result is None else {"result": result}
    return sf.fold(0, _sum_of_small, merge=lambda one, two: (one + two) % 7, type=int, **options)


AGGREGATES: dict[str, Callable[[], dict[str, Any]]] = {
    "fold": lambda: {"n": _fold()},
    "fold with a result": lambda: {"": _fold(_shown)},
    "fold in place": lambda: {
        "": sf.fold(
            list,
            _listed,
            merge=lambda one, two: [*one, *two][-4:],
            result=_shown_list,
            type=list[int],
        )
    },
    "sum by fold": lambda: {
        "": sf.fold(0, lambda total, value: total + value["n"], merge=lambda one, two: one + two, type=int)
    },
    "sum": lambda: {"": sf.sum(_n)},
    "mean": lambda: {"": sf.mean(_n)},
    "top_k": lambda: {"": sf.top_k(2, by="n", item="item")},
    "several": lambda: {
        "sum": sf.sum("n"),
        "mean": sf.mean("n"),
        "top": sf.top_k(1, by="n", item="item"),
        "own": _fold(_shown),
    },
}
Numbers = st.one_of(
    st.integers(0, 4), st.integers(-9, 9), st.sampled_from([2**63 - 1, -(2**63), 2**62, 2**64 - 1])
)
Records = st.lists(
    st.tuples(st.sampled_from("aab"), Numbers, st.sampled_from(["x", "y", "z", 1]), st.integers(-4, 5)),
    min_size=1,
    max_size=14,
)
"""Key, number, item, and seconds after the record before."""


class Outcome(NamedTuple):
    """What came of a run."""

    told: list[tuple[Any, Any]]
    state: list[Any]
    letters: Counter[Any]
    """Class of the error and number of the record, or None."""

    @property
    def newest(self) -> dict[str, Any]:
        return {str(key): value for key, value in self.told}

    @property
    def dropped(self) -> Counter[Any]:
        """Dead letters of records that are in no accumulator."""
        return Counter({letter: times for letter, times in self.letters.items() if letter[0] != "Refused"})


def run(
    kind: str, emit: str, aggregate: dict[str, Any], records: Sequence[Any], poll: int | None, policy: Any
) -> Outcome:
    """Feed records, so many of them at a time."""
    app = sf.App("cut")
    window, key = WINDOWS[kind]
    source, out = app.topic("in", key=str, value=sf.MsgPack), app.topic("out", key=key, value=sf.MsgPack)
    dead = app.topic("dead", key=str, value=sf.MsgPack)
    is_eventual = kind == "tumbling, eventual"
    stream: Any = app.stream(source, co_partitioned=not is_eventual)
    if is_eventual:
        stream = stream.key_by("key", name="by-key", key=str, value=sf.MsgPack)
    if window is not None:
        eventual = {"changelog": sf.Eventual()} if is_eventual else {}
        stream = stream.window(window, emit=HELD if emit == "held" else emit, **eventual)
    one = (aggregate[""],) if "" in aggregate else ()
    several = {} if one else aggregate
    ttl = FOUR if kind == "none, expiring" else None
    stream.aggregate(*one, name="kept", on_error=policy, ttl=ttl, **several).to(out, on_error=sf.Skip())
    driver = TestDriver(app, partitions=1, poll_records=poll)
    when, rows = T0, list[Any]()
    for number, (own, n, item, seconds) in enumerate(records):
        when += seconds * SECOND
        rows.append((own, {"key": own, "n": n, "item": item, "number": number}, when))
    driver.send_many(source, rows)
    state = [driver.state("kept", key=own) for own in "ab"] if ttl is None else []  # not deleted at once
    driver.end_input()
    told = [(record.key, record.value) for record in driver.rows(out)]
    letters = Counter(
        (
            dict(letter.headers)["sf-error-class"].decode(),
            None if letter.value is None else letter.value["number"],
        )
        for letter in driver.output(dead)
    )
    driver.stop()
    return Outcome(told, state, letters)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "emit"), KINDS)
@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(AGGREGATES)), st.sampled_from([sf.Skip(), sf.DeadLetter("dead")]), Records)
def test_batches_do_not_show(kind: str, emit: str, name: str, policy: Any, records: list[Any]) -> None:
    """On update what is told on the way is another thing with each way of cutting; all else is not."""
    whole, *cut = [run(kind, emit, AGGREGATES[name](), records, poll, policy) for poll in (None, 1, 2, 7)]
    for each in cut:
        assert each.state == whole.state
        assert each.dropped == whole.dropped
        if emit != "on_update":
            assert sorted(map(str, each.told)) == sorted(map(str, whole.told))
        if emit == "on_close":
            assert each.letters == whole.letters
        if emit == "on_update":
            newest = each.newest
            assert {key: newest[key] for key in whole.newest} == whole.newest
