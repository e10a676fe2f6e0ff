"""Event time goes by the log: the same records give the same results however they are cut into batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stateflow as sf
from stateflow.testing import TestDriver

pytestmark = pytest.mark.slow

T0, MINUTE_MS = 1_700_000_040_000, 60_000
MINUTE = timedelta(minutes=1)

Row = tuple[str, int | None, int]
"""Key, value and time in ms after T0."""


def streamed(app: sf.App, *, through_rekey: bool) -> tuple[sf.Topic[str, Any], sf.Stream[str, Any]]:
    """A stream of ``in``, keyed as its records are or by their values' first part."""
    if not through_rekey:
        topic = app.topic("in", key=str, value=sf.Json)
        return topic, app.stream(topic, co_partitioned=True)
    topic = app.topic("in", key=str, value=sf.Json)
    return topic, app.stream(topic).key_by(lambda row: row[0], name="by-key", key=str, value=sf.Json)


def feed(driver: TestDriver, topic: sf.Topic[str, Any], batches: Sequence[Sequence[Row]]) -> None:
    """Each batch is one commit of the producer, and one poll of the source task."""
    for batch in batches:
        writer = driver.cluster.writer()
        for key, value, when_ms in batch:
            data = None if value is None else topic.value.encode([key, value])
            writer.send("in", topic.key.encode(key), data, partition=0, timestamp_ms=T0 + when_ms)
        writer.commit()
        writer.close()
        driver.run()


def told(driver: TestDriver, topic: sf.Topic[str, Any]) -> list[tuple[str, int, Any]]:
    """Key, time in ms after T0, and value of every output, in order."""
    return [(record.key, record.timestamp_ms - T0, record.value) for record in driver.output(topic)]


def by_record(rows: Sequence[Row]) -> list[list[Row]]:
    return [[row] for row in rows]


@pytest.mark.parametrize("through_rekey", [False, True])
@pytest.mark.parametrize("cut", [len, lambda _rows: 1, lambda _rows: 2])
def test_what_is_late_does_not_depend_on_batches(cut: Any, through_rekey: bool) -> None:
    app = sf.App("minutes")
    topic, stream = streamed(app, through_rekey=through_rekey)
    out = app.topic("out", key=str, value=int)
    stream.window(sf.Tumbling(MINUTE), emit="on_close").count(name="n").to(out)
    driver = TestDriver(app, partitions=1)
    rows: list[Row] = [("a", 1, when_ms) for when_ms in (0, 5 * MINUTE_MS, 1, 2, 3)]
    size = cut(rows)
    feed(driver, topic, [rows[first : first + size] for first in range(0, len(rows), size)])
    driver.advance_event_time(T0 + 100 * MINUTE_MS)
    assert told(driver, out) == [("a", 0, 1), ("a", 5 * MINUTE_MS, 1)]


# --- against a model, record by record ------------------------------------------------------------------------

Logs = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.integers(-6, 8)), min_size=1, max_size=14
)
"""Key, value, and the step of time from the record before: some go back."""
Cuts = st.sets(st.integers(1, 13))
Restarts = st.sets(st.integers(0, 13), max_size=2)
TTL_MS, SIZE_MS, GRACE_MS = 6, 5, 3


def rows_of(log: Sequence[tuple[str, int, int]]) -> list[Row]:
    rows: list[Row] = []
    when_ms = 0
    for key, value, step_ms in log:
        when_ms = max(0, when_ms + step_ms)
        rows.append((key, value, when_ms))
    return rows


def run(
    build: Callable[[Any], Any], rows: list[Row], cuts: set[int], restarts: set[int], *, through_rekey: bool
) -> dict[str, list[tuple[int, Any]]]:
    """Time and value of what came out, by key, of the rows cut into batches; workers die behind some of them."""
    app = sf.App("model")
    topic, stream = streamed(app, through_rekey=through_rekey)
    out = app.topic("out", key=str, value=sf.Json)
    build(stream).to(out)
    driver = TestDriver(app, partitions=1)
    edges = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    for index, (first, after) in enumerate(pairwise(edges)):
        feed(driver, topic, [rows[first:after]])
        if index in restarts:
            driver.crash(disk_lost=index % 2 == 0)
            driver.restore()
    driver.advance_event_time(T0 + 1_000_000)
    found: dict[str, list[tuple[int, Any]]] = defaultdict(list)
    for key, when_ms, value in told(driver, out):
        found[key].append((when_ms, value))
    return dict(found)


def marked(rows: Sequence[Row]) -> list[tuple[str, Any, int, int]]:
    """The rows with their marks."""
    marks = accumulate((when_ms for _, _, when_ms in rows), max)
    return [(*row, mark_ms) for row, mark_ms in zip(rows, marks, strict=True)]


Emitted = list[tuple[str, Any, int, int]]
"""Key, value, time and mark."""


def windows_of(rows: Emitted) -> dict[str, dict[int, int]]:
    """Start → number of records in time, by key."""
    counts: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for key, _, when_ms, mark_ms in rows:
        start_ms = (T0 + when_ms) // SIZE_MS * SIZE_MS - T0
        if mark_ms < start_ms + SIZE_MS + GRACE_MS:
            counts[key][start_ms] += 1
    return {key: dict(sorted(own.items())) for key, own in counts.items()}


def windowed(emit: Any, changelog: sf.Eventual | None = None) -> Callable[[Any], Any]:
    window = sf.Tumbling(timedelta(milliseconds=SIZE_MS), grace=timedelta(milliseconds=GRACE_MS))
    return lambda stream: stream.window(window, emit=emit, changelog=changelog).count(name="n")


varied = settings(max_examples=60, deadline=None)


@varied
@given(log=Logs, cuts=Cuts, restarts=Restarts, through_rekey=st.booleans())
def test_windows_on_close_equal_the_model(log: Any, cuts: Any, restarts: Any, through_rekey: bool) -> None:
    rows = rows_of(log)
    found = run(windowed("on_close"), rows, cuts, restarts, through_rekey=through_rekey)
    assert found == {key: list(own.items()) for key, own in windows_of(marked(rows)).items()}


@varied
@given(log=Logs, cuts=Cuts, restarts=Restarts, intensity=st.sampled_from([0.0, 0.3]))
def test_windows_that_are_replayed_equal_the_model(
    log: Any, cuts: Any, restarts: Any, intensity: float
) -> None:
    rows, changelog = rows_of(log), sf.Eventual(intensity=intensity, max_replay_records=8)
    found = run(windowed("on_close", changelog), rows, cuts, restarts, through_rekey=True)
    assert found == {key: list(own.items()) for key, own in windows_of(marked(rows)).items()}


@varied
@given(log=Logs, cuts=Cuts, restarts=Restarts, through_rekey=st.booleans())
def test_the_newest_of_each_window_on_update_equals_the_model(
    log: Any, cuts: Any, restarts: Any, through_rekey: bool
) -> None:
    rows = rows_of(log)
    found = run(windowed("on_update"), rows, cuts, restarts, through_rekey=through_rekey)
    assert {key: dict(sorted(dict(own).items())) for key, own in found.items()} == windows_of(marked(rows))


@varied
@given(log=Logs, cuts=Cuts, restarts=Restarts, through_rekey=st.booleans())
def test_an_aggregate_with_a_time_to_live_equals_the_model(
    log: Any, cuts: Any, restarts: Any, through_rekey: bool
) -> None:
    rows = rows_of(log)
    found = run(
        lambda stream: stream.sum(lambda row: row[1], name="s", ttl=timedelta(milliseconds=TTL_MS)),
        rows,
        cuts,
        restarts,
        through_rekey=through_rekey,
    )
    expected: dict[str, list[tuple[int, Any]]] = defaultdict(list)
    written: dict[str, int] = {}
    for key, value, when_ms, mark_ms in marked(rows):
        gone = not expected[key] or written[key] + TTL_MS <= mark_ms
        written[key] = when_ms if gone else max(written[key], when_ms)
        expected[key].append((when_ms, value + (0 if gone else expected[key][-1][1])))
    assert {key: own[-1] for key, own in found.items()} == {key: own[-1] for key, own in expected.items()}
    for key, own in found.items():
        later = iter(expected[key])
        assert all(each in later for each in own), "an update that no record made"


class Watch(sf.Operator[str, Any, list[Any]]):
    """Every kind of timer: put off, set again by itself, set for a time that has passed, cancelled."""

    last: sf.Value[int | None] = sf.state(ttl=timedelta(milliseconds=TTL_MS))
    calls: sf.Counter = sf.state()

    def on_record(self, value: Any, ctx: sf.Context[list[Any]]) -> None:
        number = value[1]
        self.calls.add()
        ctx.emit(["record", number, self.calls.get(), self.last.get(), ctx.watermark_ms - T0])
        if number == 0:
            ctx.cancel_timer("idle")
        elif number == 1:
            ctx.timer("past", at=ctx.timestamp_ms - 3)
        elif number == 2:
            ctx.timer("tick", after=timedelta(milliseconds=2))
        else:
            self.last.set(number)
            ctx.timer("idle", after=timedelta(milliseconds=number))

    def on_timer(self, name: str, ctx: sf.Context[list[Any]]) -> None:
        self.calls.add()
        ctx.emit([name, self.calls.get(), self.last.get(), ctx.watermark_ms - T0])
        if name == "tick" and self.calls.get() % 3:
            ctx.timer("tick", after=timedelta(milliseconds=1))
        elif name == "idle":
            self.last.set(-1)


class WatchModel:
    """``Watch`` of one key, in the simplest words."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.calls = 0
        self.last: tuple[int, int] | None = None
        self.timers: dict[str, tuple[int, int]] = {}
        """Due, and as of when at least."""
        self.out: Emitted = []

    def record(self, number: int, when_ms: int, mark_ms: int) -> None:
        self.fire(mark_ms)
        self.calls += 1
        told = ["record", number, self.calls, self.last_at(mark_ms), mark_ms]
        self.out.append((self.key, told, when_ms, mark_ms))
        if number == 0:
            self.timers.pop("idle", None)
        elif number == 1:
            self.timers["past"] = (when_ms - 3, mark_ms)
        elif number == 2:
            self.timers["tick"] = (when_ms + 2, mark_ms)
        else:
            self.set_last(number, when_ms, mark_ms)
            self.timers["idle"] = (when_ms + number, mark_ms)

    def fire(self, until_ms: int) -> None:
        while self.timers:
            due_ms, name = min((due_ms, name) for name, (due_ms, _) in self.timers.items())
            if due_ms > until_ms:
                return
            as_of_ms = max(self.timers.pop(name))
            self.calls += 1
            self.out.append(
                (self.key, [name, self.calls, self.last_at(as_of_ms), as_of_ms], due_ms, as_of_ms)
            )
            if name == "tick" and self.calls % 3:
                self.timers["tick"] = (due_ms + 1, as_of_ms)
            elif name == "idle":
                self.set_last(-1, due_ms, as_of_ms)

    def set_last(self, number: int, when_ms: int, as_of_ms: int) -> None:
        """What comes late does not shorten the life of what it replaces."""
        before_ms = when_ms if self.last is None or self.last_at(as_of_ms) is None else self.last[1]
        self.last = (number, max(when_ms, before_ms))

    def last_at(self, as_of_ms: int) -> int | None:
        return None if self.last is None or self.last[1] + TTL_MS <= as_of_ms else self.last[0]


def watched(rows: Sequence[Row]) -> dict[str, Emitted]:
    models: dict[str, WatchModel] = {}
    for key, value, when_ms, mark_ms in marked(rows):
        models.setdefault(key, WatchModel(key)).record(value, when_ms, mark_ms)
    for model in models.values():
        model.fire(1_000_000)
    return {key: model.out for key, model in models.items()}


@varied
@given(log=Logs, cuts=Cuts, restarts=Restarts, through_rekey=st.booleans())
def test_timers_and_times_to_live_equal_the_model(
    log: Any, cuts: Any, restarts: Any, through_rekey: bool
) -> None:
    rows = rows_of(log)
    found = run(
        lambda stream: stream.process(Watch, name="watch"), rows, cuts, restarts, through_rekey=through_rekey
    )
    assert found == {
        key: [(when_ms, value) for _, value, when_ms, _ in out] for key, out in watched(rows).items()
    }


@varied
@given(log=Logs, cuts=Cuts, restarts=Restarts, through_rekey=st.booleans())
def test_windows_behind_timers_equal_the_model(
    log: Any, cuts: Any, restarts: Any, through_rekey: bool
) -> None:
    rows = rows_of(log)
    found = run(
        lambda stream: windowed("on_close")(stream.process(Watch, name="watch")),
        rows,
        cuts,
        restarts,
        through_rekey=through_rekey,
    )
    emitted = [row for out in watched(rows).values() for row in out]
    assert found == {key: list(own.items()) for key, own in windows_of(emitted).items()}


@pytest.mark.parametrize("through_rekey", [False, True])
def test_the_first_moment_of_all_is_in_the_first_window(through_rekey: bool) -> None:
    app = sf.App("first")
    times = app.topic("times", key=str, value=int, timestamp=lambda at_ms: at_ms)
    out = app.topic("out", key=sf.WindowedKey(sf.String, 60_000), value=int)
    stream = app.stream(times, co_partitioned=True)
    if through_rekey:
        stream = stream.key_by(lambda _: "k", name="by-k", key=str)
    stream.window(sf.Tumbling(timedelta(minutes=1))).count(name="counts").to(out)
    driver = TestDriver(app, partitions=1)
    driver.send_many(times, [("k", 0, 5_000), ("k", 1, 6_000)])
    assert {(row.key.start_ms, row.timestamp_ms) for row in driver.rows(out)} == {(0, 1)}
    assert driver.rows(out)[-1].value == 2
