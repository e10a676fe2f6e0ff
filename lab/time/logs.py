"""Random logs with everything that event time has to bear: late records, ties, jumps, gaps, tombstones."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

from stateflow.partitioner import partition_of

UNIT_MS = 1_000
"""About a window: times are drawn in multiples of this."""
_FIRST_TIMES_MS = (100 * UNIT_MS, 1_700_000_000_000)
"""Early, or now. Not so early that anything would be of time 0: Kafka's client takes that for *no time given*."""
_FAR_MS = 1_000 * UNIT_MS
END_KEY = "end"
"""Begins the key of the last record of each partition, which is so far in the future that every window and timer before
it is due."""


class Row(NamedTuple):
    """One record of the source topic, decoded."""

    partition: int
    key: str
    value: int | None
    timestamp_ms: int


@dataclass(frozen=True)
class LogShape:
    """What a log is drawn from."""

    partitions: int = 1
    keys: int = 4
    rows: int = 40
    disorder_ms: int = UNIT_MS
    """How far behind the newest record most late ones are; one in five is up to six times as late."""
    late: float = 0.3
    jumps: float = 0.05
    """Part of the records before which event time makes a jump."""
    empty: float = 0.0
    """Part of the records that are tombstones."""
    empty_ahead: bool = True
    """Whether a tombstone may be what moves event time. Kafka Streams does not see the time of what it leaves out, a
    source partition here does: logs to compare have none such."""
    by_key: bool = True
    """Whether a key's records are all in the partition that Kafka's partitioner chooses."""


def random_shape(
    rng: random.Random, *, partitions: int = 1, by_key: bool = True, empty_ahead: bool = True
) -> LogShape:
    """A shape; half of all logs have a few tombstones."""
    return LogShape(
        partitions=partitions,
        keys=rng.choice((1, 2, 4, 12)),
        rows=rng.choice((5, 20, 40, 60)),
        disorder_ms=rng.choice((UNIT_MS // 4, UNIT_MS, 3 * UNIT_MS)),
        late=rng.choice((0.0, 0.2, 0.5)),
        jumps=rng.choice((0.0, 0.05, 0.2)),
        empty=rng.choice((0.0, 0.1)),
        empty_ahead=empty_ahead,
        by_key=by_key,
    )


def random_log(rng: random.Random, shape: LogShape) -> tuple[Row, ...]:
    """The rows in the order in which they are sent, an ``END_KEY`` for each partition last."""
    now_ms = [rng.choice(_FIRST_TIMES_MS)] * shape.partitions
    newest_ms = [0] * shape.partitions
    rows = []
    for _ in range(shape.rows):
        key = f"k{rng.randrange(shape.keys)}"
        chosen = rng.randrange(shape.partitions)
        partition = partition_of(key.encode(), shape.partitions) if shape.by_key else chosen
        when_ms = now_ms[partition] + _step_ms(rng, shape) - _delay_ms(rng, shape)
        now_ms[partition] = max(now_ms[partition], when_ms)
        is_empty = rng.random() < shape.empty and (shape.empty_ahead or when_ms <= newest_ms[partition])
        rows.append(Row(partition, key, None if is_empty else rng.randint(-2, 20), when_ms))
        if not is_empty:
            newest_ms[partition] = max(newest_ms[partition], when_ms)
    end_ms = max(now_ms) + _FAR_MS
    return (
        *rows,
        *(Row(partition, f"{END_KEY}{partition}", 1, end_ms) for partition in range(shape.partitions)),
    )


def _step_ms(rng: random.Random, shape: LogShape) -> int:
    if rng.random() < shape.jumps:
        return rng.randint(2, 40) * UNIT_MS
    return rng.choice((0, rng.randint(0, UNIT_MS // 2), rng.randint(0, UNIT_MS // 20)))


def _delay_ms(rng: random.Random, shape: LogShape) -> int:
    if rng.random() >= shape.late:
        return 0
    return rng.randint(0, shape.disorder_ms * rng.choice((1, 1, 1, 1, 6)))
