"""Random logs through results that are held back, ours and Kafka Streams' ``suppress``, and what comes out compared.

Until a time limit, of a table: every result of a key with its time, in order, through any batches, crashes and, where
nothing is bounded, repartitions. With bounds the same, since there is one task: what is told early is the same too, or
both give up at the same record. A record that would itself make what is held of its key due has one of a key of its own
before it that brings event time there: which of both goes first is where the two differ (``docs/timers.md``).

Until a window closes: the one result of each window, and where that is bounded the record at which both give up. At
intervals, which Kafka Streams does not have: the last result of each window is its final one. After a time limit, of
windows: every result, where records come in order and one by one and the limit is no longer than the grace; else the
last one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

import stateflow as sf
from stateflow.errors import BufferFull
from stateflow.lab.time.logs import END_KEY, UNIT_MS
from stateflow.lab.time.streams import KafkaStreams
from stateflow.operators.windows.windows import Window
from stateflow.testing.driver import TestDriver

SUPPRESS_ORACLE = Path(__file__).parent / "SuppressOracle.java"

Until = Literal["limit", "close", "tick"]
Kind = Literal["none", "tumbling", "hopping", "sliding", "session"]
Rule = Literal["each", "newest"]
WhenFull = Literal["emit", "fail"]
SUPPRESSIONS: tuple[tuple[Until, Kind], ...] = (
    ("limit", "none"),
    ("limit", "none"),
    ("limit", "tumbling"),
    ("limit", "hopping"),
    ("limit", "session"),
    ("close", "tumbling"),
    ("close", "hopping"),
    ("close", "sliding"),
    ("close", "session"),
    ("tick", "tumbling"),
    ("tick", "hopping"),
    ("tick", "sliding"),
    ("tick", "session"),
)
_FIRST_MS = 1_700_000_000_000
_FAR_MS = 1_000 * UNIT_MS

Results = dict[str, list[tuple[str | None, int]]]
"""By key, with its window: values, None for a deletion, and times; of windows all times are 0."""


class Sent(NamedTuple):
    """One record of the log."""

    key: str
    value: str | None
    timestamp_ms: int


class Outcome(NamedTuple):
    """What came of a log."""

    results: Results
    failed: int
    """Number of the record at which it gave up, −1 for none."""


@dataclass(frozen=True)
class SuppressCase:
    """How results are held back, a log, and how it is put through ours: drawn from seed and number alone."""

    until: Until
    window: Kind
    limit_ms: int
    """Of Kafka Streams; 0 for the close of the window."""
    tick_ms: int
    size_ms: int
    grace_ms: int
    max_records: int
    """0 for any number."""
    when_full: WhenFull
    is_in_order: bool
    is_rekeyed: bool
    """Whether it stands behind a re-key step, and so may be repartitioned."""
    records: tuple[Sent, ...]
    seed: str

    @property
    def rule(self) -> Rule:
        """Whether every result must be the same, or the last one of each key."""
        if self.window == "none" or self.until == "close":
            return "each"
        # Kafka Streams makes room amid the windows of one record, and may tell of one what that record changes next.
        is_alike = self.window == "tumbling" or (self.window == "hopping" and not self.max_records)
        return "each" if self.until == "limit" and self.is_in_order and is_alike else "newest"

    @property
    def comes_one_by_one(self) -> bool:
        """Windows tell once per batch, and what gives up does so at one record."""
        return (self.until == "limit" and self.window != "none") or (
            self.max_records > 0 and self.when_full == "fail"
        )


def suppress_case(seed: int, number: int) -> SuppressCase:
    """The case of a number."""
    name = f"suppress-{seed}-{number}"
    rng = random.Random(name)  # noqa: S311 - nothing secret: it must be repeatable
    until, window = SUPPRESSIONS[number % len(SUPPRESSIONS)]
    grace_ms = rng.choice((0, UNIT_MS // 4, 2 * UNIT_MS))
    limit_ms = rng.choice((1, 100, UNIT_MS // 4, 3 * UNIT_MS))
    if window != "none":
        grace_ms = max(grace_ms, 1)
        limit_ms = min(limit_ms, grace_ms)
    is_in_order = until == "limit" and window != "none" and rng.random() < 0.7
    when_full: WhenFull = "fail" if until == "close" else rng.choice(("emit", "emit", "fail"))
    # Of sessions and sliding windows Kafka Streams holds what is withdrawn, and windows of its own, too.
    can_be_full = window in ("none", "tumbling", "hopping") and until != "tick"
    is_bounded = can_be_full and (until == "close" or window == "none" or is_in_order)
    max_records = rng.choice((0, 2, 3, 8)) if is_bounded else 0
    return SuppressCase(
        until=until,
        window=window,
        limit_ms=limit_ms if until == "limit" else 0,
        tick_ms=rng.choice((100, UNIT_MS)),
        size_ms=rng.choice((UNIT_MS // 2, 2 * UNIT_MS)),
        grace_ms=grace_ms,
        max_records=max_records,
        when_full=when_full,
        is_in_order=is_in_order,
        is_rekeyed=max_records == 0 and not is_in_order and rng.random() < 0.5,
        records=_random_records(rng, window, is_in_order=is_in_order, grace_ms=grace_ms),
        seed=name,
    )


def _random_records(
    rng: random.Random, window: Kind, *, is_in_order: bool, grace_ms: int
) -> tuple[Sent, ...]:
    keys, empty = rng.choice((1, 3, 8)), rng.choice((0.0, 0.2))
    late, jumps = (0.0 if is_in_order else rng.choice((0.0, 0.2, 0.5))), rng.choice((0.0, 0.1))
    now_ms, records, living = _FIRST_MS, [Sent("c---", "v", _FIRST_MS)], set[str]()
    for number in range(rng.choice((5, 20, 50))):
        step_ms = rng.randint(2, 10) * UNIT_MS if rng.random() < jumps else rng.choice((0, 0, 40, 150, 400))
        delay_ms = rng.randint(0, rng.choice((1, 1, 4)) * UNIT_MS) if rng.random() < late else 0
        when_ms, key = now_ms + step_ms - delay_ms, f"k{rng.randrange(keys):03}"
        if window in ("session", "sliding") and when_ms + grace_ms < now_ms:
            continue  # taken by one of the two only (decision 0020)
        if when_ms > now_ms:
            records.append(Sent(f"c{number:03}", f"v{number:03}", when_ms))
            now_ms = when_ms
        is_deletion = window == "none" and key in living and rng.random() < empty
        (living.discard if is_deletion else living.add)(key)
        records.append(Sent(key, None if is_deletion else f"v{number:03}", when_ms))
    return (*records, Sent(END_KEY, "v", now_ms + _FAR_MS))


def asked(case: SuppressCase, streams: KafkaStreams) -> Outcome:
    """What Kafka Streams says."""
    found = streams.ask(asdict(case))
    return Outcome(_by_key(case, found["results"]), found["failed"])


def played(case: SuppressCase) -> Outcome:
    """What our application says, through batches, crashes and repartitions where these may not matter."""
    app, source, out = build(case)
    rng = random.Random(f"{case.seed}-play")  # noqa: S311 - as above
    driver = TestDriver(app, partitions=1, poll_records=rng.choice((None, 1, 3)))
    done, partitions, failed = 0, 1, -1
    while done < len(case.records) and failed < 0:
        count = 1 if case.comes_one_by_one else rng.choice((1, 2, 5, 60))
        try:
            driver.send_many(source, case.records[done : done + count])
        except BufferFull:
            failed = done
        done += count
        if failed < 0 and rng.random() < 0.1:
            driver.crash(disk_lost=rng.random() < 0.5)
            driver.restore()
        elif failed < 0 and rng.random() < 0.05 and case.is_rekeyed:
            partitions = partitions % 3 + 1
            driver.repartition(partitions)
    rows = []
    for record in driver.output(out):
        key = record.key
        named = key if isinstance(key, str) else f"{key.key}@{key.start_ms}@{key.end_ms}"
        rows.append((named, record.value, record.timestamp_ms))
    return Outcome(_by_key(case, rows), failed)


def build(case: SuppressCase) -> tuple[sf.App, sf.Topic[str, str], sf.Topic[Any, str]]:
    """The application, its source topic and its output."""
    app = sf.App("suppress", guarantee="exactly-once")
    source = app.topic("in", key=str, value=str)
    limit = _limit_of(case)
    if case.window == "none":
        plain = app.topic("out", key=str, value=str)
        table = app.table(source, name="kept", co_partitioned=not case.is_rekeyed)
        table.to_stream().suppress(limit, name="held").to(plain)
        return app, source, plain
    key: Any = (
        sf.SessionKey(sf.String) if case.window == "session" else sf.WindowedKey(sf.String, case.size_ms)
    )
    out: sf.Topic[Any, str] = app.topic("out", key=key, value=str)
    emit: Any = limit if case.until == "limit" else sf.Every(_ms(case.tick_ms))
    if case.until == "close":
        emit = sf.OnClose(max_records=case.max_records or None)
    stream = app.stream(source, co_partitioned=not case.is_rekeyed)
    if case.is_rekeyed:
        stream = (
            stream.map_pairs(_pair, value=sf.MsgPack)
            .key_by(_first, name="by-key", key=str)
            .map(_second, value=str)
        )
    values = sf.fold(str, _with, merge=_both, type=str)
    stream.window(_window_of(case), emit=emit).aggregate(values, name="all").to(out)
    return app, source, out


def _limit_of(case: SuppressCase) -> sf.TimeLimit:
    return sf.TimeLimit(
        _ms(max(1, case.limit_ms)), max_records=case.max_records or None, when_full=case.when_full
    )


def _window_of(case: SuppressCase) -> Window:
    size, grace = _ms(case.size_ms), _ms(case.grace_ms)
    match case.window:
        case "hopping":
            return sf.Hopping(size, size / 2, grace=grace)
        case "sliding":
            return sf.Sliding(size, grace=grace)
        case "session":
            return sf.Session(size, grace=grace)
        case _:
            return sf.Tumbling(size, grace=grace)


def _ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def _pair(key: str, value: str) -> list[str]:
    return [key, value]


def _first(pair: list[str]) -> str:
    return pair[0]


def _second(pair: list[str]) -> str:
    return pair[1]


def _with(values: str, value: str) -> str:
    """All values so far, in an order that does not tell in which they came, as the Java program has it."""
    return _both(values, f"{value};")


def _both(one: str, two: str) -> str:
    return "".join(f"{value};" for value in sorted((one + two).split(";")) if value)


def _by_key(case: SuppressCase, rows: Sequence[Any]) -> Results:
    found: Results = {}
    for key, value, timestamp_ms in rows:
        found.setdefault(key, []).append((value, timestamp_ms if case.window == "none" else 0))
    if case.rule == "each":
        return found
    return {key: told[-1:] for key, told in found.items() if told[-1][0] is not None}
