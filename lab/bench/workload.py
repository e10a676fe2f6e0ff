"""What is measured: the work, its size, and the input that every side is given."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from stateflow.log.base import Cluster, TopicSpec
from stateflow.partitioner import partition_of

WorkName = Literal["count", "rekey", "window", "operator", "join", "restore", "image", "read", "write"]
WORKS: dict[WorkName, str] = {
    "count": "a running count per key, with its changelog",
    "rekey": "the same behind a re-key step: every record goes through a repartition topic",
    "window": "a sum per key and minute, with its changelog",
    "operator": "an operator called for each record: a running sum per key",
    "join": "pairs of two inputs, of equal keys within three seconds of each other, counted per key",
    "restore": "a changelog of five records per key, restored to an empty disk",
    "image": "the same from an image that lacks the last hundredth of the changelog; peers have none, and restore all",
    "read": "reading the input, keys and values",
    "write": "writing the input, held in memory, to another topic",
}
RESTORES: frozenset[WorkName] = frozenset({"restore", "image"})
"""Whose input is a changelog."""
JOIN_WITHIN_MS = 3_000
JOIN_GRACE_MS = 10_000
"""Both inputs are in order; a side that reads one of them ahead of the other must not call anything late."""
STATE_DIR = "state"
STORE = "state"
"""What the store is called whose content is compared."""
_SEED = 5
_FIRST_MS = 1_704_067_200_000
_MINUTES = 10
_CHUNK_RECORDS = 20_000
_CHANGELOG_RECORDS_PER_KEY = 5
_NUMBER = struct.Struct(">q")
NUMBER_AT = 16
"""Where in a value its number is: behind the key that ``rekey`` takes."""
_NUMBER_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Workload:
    """One benchmark: what is done, and with how much. Sides get it as JSON.

    Keys are 16 bytes, values ``value_bytes``: 16 bytes of another key, 8 of a number, and padding.
    """

    work: WorkName
    records: int = 1_000_000
    """Records in the topic. ``warm_records`` of them are processed before the clock starts."""
    warm_records: int = 200_000
    keys: int = 100_000
    partitions: int = 4
    value_bytes: int = 100
    commit_seconds: float = 1.0
    guarantee: Literal["exactly-once", "at-least-once"] = "exactly-once"
    threads: int = 2
    """Threads of a peer that has a choice."""
    shared_writers: int = 0
    """Of this project's worker."""

    @property
    def topic(self) -> str:
        """The input, or the first one."""
        return f"bench-{self.work}-input"

    @property
    def inputs(self) -> list[str]:
        """All inputs: a join has two, each with ``records``."""
        return [self.topic, f"{self.topic}-right"] if self.work == "join" else [self.topic]

    @property
    def all_records(self) -> int:
        """Records of all inputs."""
        return self.records * len(self.inputs)

    @property
    def timed_records(self) -> int:
        """Records that the clock runs for."""
        return self.all_records - (0 if self.work in RESTORES or self.work == "read" else self.warm_records)

    def encode(self) -> str:
        """As the sides read it."""
        more = {"inputs": self.inputs, "all_records": self.all_records, "number_at": NUMBER_AT}
        join = {"join_within_ms": JOIN_WITHIN_MS, "join_grace_ms": JOIN_GRACE_MS}
        return json.dumps(asdict(self) | {"topic": self.topic} | more | join)

    @classmethod
    def decode(cls, text: str) -> Self:
        """What ``encode`` wrote."""
        fields = json.loads(text)
        return cls(**{name: value for name, value in fields.items() if name in cls.__dataclass_fields__})


def number_in(value: bytes) -> int:
    """The number that stands in a value."""
    number: int = _NUMBER.unpack_from(value, NUMBER_AT)[0]
    return number


def other_key_in(value: bytes) -> bytes:
    """The key that a value goes to behind a re-key step."""
    return value[:NUMBER_AT]


def fill(cluster: Cluster, load: Workload, topics: Sequence[str]) -> None:
    """Write the input, the same into each of the topics; what a join has on its right, too.

    A changelog has its records with the wall clock's time, as workers write them, the input of a window with times over
    some minutes.
    """
    is_log = load.work in RESTORES
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"} if is_log else {}
    _, *others = load.inputs
    made = [*topics, *others]
    cluster.delete([topic for topic in made if topic in cluster.list_topics()])
    cluster.create(
        [TopicSpec(topic, load.partitions, config={"retention.ms": "-1", **config}) for topic in made]
    )
    with closing(cluster.writer()) as writer:
        for seed, same in enumerate([topics, *([topic] for topic in others)], _SEED):
            for keys, values, partitions, times_ms in _chunks(load, seed):
                for topic in same:
                    writer.send_many(
                        topic, keys, values, partitions=partitions, timestamps_ms=None if is_log else times_ms
                    )
                writer.commit()


def _chunks(load: Workload, seed: int) -> Iterator[tuple[list[bytes], list[bytes], list[int], list[int]]]:
    draw, names = random.Random(seed), [b"%016d" % number for number in range(load.keys)]
    places = [partition_of(name, load.partitions) for name in names]
    padding = bytes(load.value_bytes - NUMBER_AT - _NUMBER.size)
    chosen = _in_rounds(load.keys) if load.work in RESTORES else _at_random(draw, load.keys)
    for first in range(0, load.records, _CHUNK_RECORDS):
        rows = range(first, min(load.records, first + _CHUNK_RECORDS))
        keys = [chosen(row) for row in rows]
        values = [
            names[draw.randrange(load.keys)] + _NUMBER.pack(draw.randrange(_NUMBER_MAX)) + padding
            for _ in rows
        ]
        yield (
            [names[key] for key in keys],
            values,
            [places[key] for key in keys],
            [_FIRST_MS + row * _MINUTES * 60_000 // load.records for row in rows],
        )


def _at_random(draw: random.Random, keys: int) -> Callable[[int], int]:
    return lambda _row: draw.randrange(keys)


def _in_rounds(keys: int) -> Callable[[int], int]:
    """Every key once, then every key again: by a step that has no divisor in common with their number."""
    step = next(step for step in range(7_919, 2 * keys + 7_920, 2) if _are_coprime(step, keys))
    return lambda row: row * step % keys


def _are_coprime(one: int, two: int) -> bool:
    while two:
        one, two = two, one % two
    return one == 1


def of(work: WorkName, records: int, keys: int | None, **options: Any) -> Workload:
    """The workload of a size; restores have five records of each key where nothing else is said."""
    if work in RESTORES:
        keys = keys or max(1, records // _CHANGELOG_RECORDS_PER_KEY)
    return Workload(work, records, records // 5, keys or 100_000, **options)
