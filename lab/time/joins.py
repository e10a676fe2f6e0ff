"""Random logs through joins and tables, ours and Kafka Streams', and what comes out compared.

Streams are joined with both sides in one topic, so that event time is a function of that log: there the answer must be
the same for any batches, crashes and partitions. Kafka Streams joins records, too, that are later than the grace, as
long as it happens to have their partners; it is given the log without them. Where sides are topics of their own,
records are sent one by one, as its test driver does.

Two things of Kafka Streams' answers are left out: deletions of what is not there, and a record without a partner that
has one all the same (it passes on at once what comes after its interval, though partners may follow within the
grace).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

import stateflow as sf
from stateflow.lab.quiet import quiet
from stateflow.lab.time.logs import END_KEY, UNIT_MS
from stateflow.lab.time.report import TimeReport
from stateflow.lab.time.streams import KafkaStreams
from stateflow.testing.driver import TestDriver

JOIN_ORACLE = Path(__file__).parent / "JoinOracle.java"

Sides = Literal["stream-stream", "stream-to-table", "stream-table", "table-table", "foreign", "aggregate"]
How = Literal["inner", "left", "outer"]
JOINS: tuple[tuple[Sides, How], ...] = (
    ("stream-stream", "inner"),
    ("stream-stream", "left"),
    ("stream-stream", "outer"),
    ("stream-to-table", "inner"),
    ("stream-to-table", "left"),
    ("stream-table", "inner"),
    ("stream-table", "left"),
    ("table-table", "inner"),
    ("table-table", "left"),
    ("table-table", "outer"),
    ("aggregate", "inner"),
    ("foreign", "inner"),
    ("foreign", "left"),
)
_FIRST_MS = 1_700_000_000_000
_FAR_MS = 1_000 * UNIT_MS
_ONE_TOPIC = ("stream-stream", "stream-to-table")

NOTHING = "null"
"""What stands for a missing partner."""

Results = dict[str, list[tuple[str | None, int]]]
"""By key: values, None for a deletion, and times."""


class Sent(NamedTuple):
    """One record of the log."""

    topic: str
    key: str
    value: str | None
    timestamp_ms: int


@dataclass(frozen=True)
class JoinCase:
    """A join, a log, and how it is put through ours: drawn from seed and number alone."""

    sides: Sides
    how: How
    before_ms: int
    after_ms: int
    grace_ms: int
    records: tuple[Sent, ...]
    is_rekeyed: bool
    """Whether the sides go through re-key steps."""
    seed: str

    @property
    def late(self) -> int:
        """Number of records later than the grace."""
        return len(self.records) - len(self.in_time())

    def in_time(self) -> list[Sent]:
        """The records that a join of streams takes."""
        if self.sides != "stream-stream":
            return list(self.records)
        kept, mark_ms = [], 0
        for record in self.records:
            mark_ms = max(mark_ms, record.timestamp_ms)
            if record.timestamp_ms + self.grace_ms >= mark_ms:
                kept.append(record)
        return kept


def join_case(seed: int, number: int) -> JoinCase:
    """The case of a number."""
    name = f"joins-{seed}-{number}"
    rng = random.Random(name)  # noqa: S311 - nothing secret: it must be repeatable
    sides, how = JOINS[number % len(JOINS)]
    # Not 0: Kafka Streams' store forgets a record at the last instant at which such a join would still look for it.
    spans = (1, UNIT_MS // 4, UNIT_MS)
    before_ms, after_ms = rng.choice(spans), rng.choice(spans)
    return JoinCase(
        sides=sides,
        how=how,
        before_ms=before_ms,
        after_ms=after_ms,
        grace_ms=rng.choice((0, UNIT_MS // 4, 2 * UNIT_MS)),
        records=_random_records(rng, sides),
        is_rekeyed=rng.random() < 0.5,
        seed=name,
    )


def _random_records(rng: random.Random, sides: Sides) -> tuple[Sent, ...]:
    keys, empty = rng.choice((1, 3, 8)), rng.choice((0.0, 0.1, 0.3))
    late, jumps = rng.choice((0.0, 0.2, 0.5)), rng.choice((0.0, 0.1))
    now_ms, records = _FIRST_MS, []
    for number in range(rng.choice((5, 20, 50))):
        step_ms = rng.randint(2, 10) * UNIT_MS if rng.random() < jumps else rng.choice((0, 0, 40, 150, 400))
        delay_ms = rng.randint(0, rng.choice((1, 1, 4)) * UNIT_MS) if rng.random() < late else 0
        when_ms = now_ms + step_ms - delay_ms
        side = rng.choice(("left", "right"))
        value: str | None = f"{side[0]}{number}"
        if sides in ("foreign", "aggregate"):
            is_left = side == "left" or sides == "aggregate"
            value = f"k{rng.randrange(4)}.{number}" if is_left else value
        # Kafka Streams does not see the time of what it leaves out: none such moves event time.
        if rng.random() < empty and (sides not in _ONE_TOPIC or when_ms <= now_ms):
            value = None
        now_ms = max(now_ms, when_ms)
        topic = "in" if sides in _ONE_TOPIC else "left" if sides == "aggregate" else side
        records.append(Sent(topic, f"k{rng.randrange(keys)}", value, when_ms))
    if sides == "stream-stream":
        records.append(Sent("in", END_KEY, "l", now_ms + _FAR_MS))
    return tuple(records)


def run_joins(seed: int, numbers: Sequence[int], streams: KafkaStreams | None) -> TimeReport:
    """The cases of these numbers, asked and played; none without Kafka Streams, which alone knows the answers."""
    report = TimeReport()
    with quiet():
        for number in numbers:
            if streams is not None:
                _compare(join_case(seed, number), number, streams, report)
    return report


def _compare(case: JoinCase, number: int, streams: KafkaStreams, report: TimeReport) -> None:
    name = f"{case.sides} {case.how}"
    wanted = asked(case, streams)
    try:
        found = played(case, report.acts)
        why = "" if fits(case, wanted, found) else f"{found} instead of {wanted}"
    except Exception as error:  # noqa: BLE001 - whatever stops an application is a difference, too
        why = f"{type(error).__name__}: {error}"
    report.logs += 1
    report.late += case.late
    report.compared_with_streams += 1
    report.cases[name] += 1
    if why:
        report.wrong[name] += 1
        report.different += 1
        report.failed.append(f"log {number}, {name}: {why}")


def asked(case: JoinCase, streams: KafkaStreams) -> Results:
    """What Kafka Streams says."""
    question: Mapping[str, Any] = {**asdict(case), "records": case.in_time()}
    found = _without_needless_deletions(streams.ask(question))
    if case.sides in ("table-table", "foreign"):
        return {key: _without_repeats(rows) for key, rows in found.items()}
    if case.sides != "stream-stream":
        return found
    return {key: _without_spurious(rows) for key, rows in found.items()}


def played(case: JoinCase, acts: Counter[str] | None = None) -> Results:
    """What our application says, through batches, crashes and repartitions (``acts``) where these may not matter."""
    acts = Counter() if acts is None else acts
    app, topics, out = build(case)
    rng = random.Random(f"{case.seed}-play")  # noqa: S311 - as above
    driver = TestDriver(app, partitions=1, poll_records=rng.choice((None, 1, 3)))
    left, partitions = list(case.records), 1
    while left:
        count = rng.choice((1, 2, 5, 60)) if case.sides in _ONE_TOPIC and not _is_order_lost(case) else 1
        batch, left = left[:count], left[count:]
        for topic in dict.fromkeys(record.topic for record in batch):
            driver.send_many(topics[topic], [record[1:] for record in batch if record.topic == topic])
        if rng.random() < 0.1:
            driver.crash(disk_lost=rng.random() < 0.5)
            driver.restore()
            acts["crash"] += 1
        elif rng.random() < 0.05 and case.is_rekeyed:
            partitions = partitions % 3 + 1
            driver.repartition(partitions)
            acts["repartition"] += 1
    rows = [(record.key, record.value, record.timestamp_ms) for record in driver.output(out)]
    return _without_needless_deletions(rows)


def _is_order_lost(case: JoinCase) -> bool:
    """Where both sides of one topic go through re-key steps of their own, the order between them is the worker's."""
    return case.is_rekeyed and case.sides == "stream-to-table"


def fits(case: JoinCase, wanted: Results, found: Results) -> bool:
    """Whether both say the same: of streams every pair, in any order; of tables every change of a key, in order.

    A deletion of the left row has its own time here; by a foreign key it has there that of the row it named, if later.
    """
    if case.sides == "stream-stream":
        return {key: sorted(rows, key=str) for key, rows in wanted.items()} == {
            key: sorted(rows, key=str) for key, rows in found.items()
        }
    if case.sides == "foreign":
        return _without_times_of_deletions(wanted) == _without_times_of_deletions(found)
    return wanted == found


def build(case: JoinCase) -> tuple[sf.App, dict[str, sf.Topic[str, str]], sf.Topic[str, str]]:
    """The application, its source topics and its output."""
    app = sf.App("joins", guarantee="exactly-once")
    names = {record.topic for record in case.records}
    names |= (
        {"in"} if case.sides in _ONE_TOPIC else {"left"} if case.sides == "aggregate" else {"left", "right"}
    )
    topics = {name: app.topic(name, key=str, value=str) for name in sorted(names)}
    out = app.topic("out", key=str, value=str)
    if case.sides in _ONE_TOPIC:
        _join_streams(case, app, topics["in"]).to(out)
    elif case.sides == "stream-table":
        _stream_with_table(case, app, topics).to(out)
    else:
        _tables(case, app, topics).to(out)
    return app, topics, out


def _join_streams(case: JoinCase, app: sf.App, topic: sf.Topic[str, str]) -> sf.Stream[str, str]:
    source = app.stream(topic, co_partitioned=not case.is_rekeyed)
    left = source.filter(lambda value: value.startswith("l"))
    right = source.filter(lambda value: value.startswith("r"))
    if case.sides == "stream-to-table":
        table = right.to_table(name="kept")
        verb = left.join if case.how == "inner" else left.left_join
        return verb(table, pair, name="joined")
    milliseconds = [timedelta(milliseconds=ms) for ms in (case.before_ms, case.after_ms, case.grace_ms)]
    joins: dict[str, Any] = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}
    joined: sf.Stream[str, str] = joins[case.how](right, pair, name="joined", within=sf.Within(*milliseconds))
    return joined


def _stream_with_table(
    case: JoinCase, app: sf.App, topics: Mapping[str, sf.Topic[str, str]]
) -> sf.Stream[str, str]:
    table = app.table(topics["right"], name="kept", co_partitioned=not case.is_rekeyed)
    left = app.stream(topics["left"], co_partitioned=not case.is_rekeyed)
    verb = left.join if case.how == "inner" else left.left_join
    return verb(table, pair, name="joined")


def _tables(case: JoinCase, app: sf.App, topics: Mapping[str, sf.Topic[str, str]]) -> sf.Table[str, str]:
    by_producers = not case.is_rekeyed and case.sides != "foreign"
    left = app.table(topics["left"], name="kept-left", co_partitioned=by_producers)
    if case.sides == "aggregate":
        grouped = left.group_by(group, name="by-group", key=str)
        return grouped.aggregate(initial="", add=with_value, remove=without_value, name="values")
    right = app.table(topics["right"], name="kept-right", co_partitioned=by_producers)
    if case.sides == "foreign":
        by_key = left.foreign_join if case.how == "inner" else left.left_foreign_join
        return by_key(right, group, pair, name="joined")
    joins: dict[str, Any] = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}
    joined: sf.Table[str, str] = joins[case.how](right, pair, name="joined")
    return joined


def pair(left: str | None, right: str | None) -> str:
    """As the Java program has it."""
    return f"{left or NOTHING}+{right or NOTHING}"


def group(value: str) -> str:
    """What stands before the dot."""
    return value.partition(".")[0]


def with_value(values: str, value: str) -> str:
    """The values of a group with one more."""
    return f"{values}{value};"


def without_value(values: str, value: str) -> str:
    """The values of a group without one."""
    return values.replace(f"{value};", "", 1)


def _without_spurious(rows: list[tuple[str | None, int]]) -> list[tuple[str | None, int]]:
    """The rows but those of records without a partner that have one; in streams a value is one record's alone."""
    sides = [(value or "").split("+") for value, _ in rows]
    matched = {side for pair in sides if NOTHING not in pair for side in pair if side[:1] in ("l", "r")}
    return [
        row
        for row, names in zip(rows, sides, strict=True)
        if NOTHING not in names or not matched.intersection(names)
    ]


def _without_times_of_deletions(results: Results) -> Results:
    return {
        key: [(value, 0 if value is None else when_ms) for value, when_ms in rows]
        for key, rows in results.items()
    }


def _without_needless_deletions(rows: Sequence[Any]) -> Results:
    found: Results = {}
    for key, value, timestamp_ms in rows:
        known = found.setdefault(key, [])
        if value is not None or (known and known[-1][0] is not None):
            known.append((value, timestamp_ms))
    return {key: known for key, known in found.items() if known}


def _without_repeats(rows: list[tuple[str | None, int]]) -> list[tuple[str | None, int]]:
    """Kafka Streams answers a deletion of what is not there, on one side, by the same result again: it is no change."""
    return [row for at, row in enumerate(rows) if at == 0 or row[0] != rows[at - 1][0]]
