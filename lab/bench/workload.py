"""What is measured: the work and its size."""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from stateflow.lab.bench.shuffling import OUTPUT_EVERY

WorkName = Literal[
    "count", "newest", "rekey", "window", "operator", "join", "shuffle", "restore", "image", "read", "write"
]
WORKS: dict[WorkName, str] = {
    "count": "a running count per key, with its changelog",
    "newest": "the newest value per key: state values as large as the input's",
    "rekey": "a count behind a re-key step: every record goes through a repartition topic",
    "window": "a sum per key and minute, with its changelog",
    "operator": "an operator called for each record: a running sum per key",
    "join": "pairs of two inputs, of equal keys within three seconds of each other, counted per key",
    "shuffle": "ShuffleBench: records matched by rules to consumers, sent to each, which keep a state and tell of it",
    "restore": "a changelog of five records per key, restored to an empty disk",
    "image": "the same from an image that lacks the last hundredth of the changelog; peers have none, and restore all",
    "read": "reading the input, keys and values",
    "write": "writing the input, held in memory, to another topic",
}
WRITES: frozenset[WorkName] = frozenset({"shuffle", "write"})
"""Whose output topic is compared."""
RESTORES: frozenset[WorkName] = frozenset({"restore", "image"})
"""Whose input is a changelog."""
JOIN_WITHIN_MS = 3_000
JOIN_GRACE_MS = 10_000
"""Both inputs are in order; a side that reads one of them ahead of the other must not call anything late."""
STORE = "state"
"""What the store is called whose content is compared."""
_CHANGELOG_RECORDS_PER_KEY = 5
_VALUE_BYTES, _SHUFFLED_VALUE_BYTES = 100, 1_024
NUMBER = struct.Struct(">q")
NUMBER_AT = 16
"""Where in a value its number is: behind the key that ``rekey`` takes."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One benchmark: what is done, and with how much. Sides get it as JSON.

    Keys are 16 bytes, values ``value_bytes``: 16 bytes of another key, 8 of a number, and padding. The records of
    ``shuffle`` have no key, and random bytes; there ``keys`` is the number of consumers.
    """

    work: WorkName
    records: int = 1_000_000
    """Records in the topic. The clock starts when the first stage has seen ``warm_records`` of them."""
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
    selectivity: float = 0.2
    """Of ``shuffle``: to how many consumers a record goes, on average."""

    @property
    def topic(self) -> str:
        """The input, or the first one."""
        return f"bench-{self.work}-input"

    @property
    def inputs(self) -> list[str]:
        """All inputs: a join has two, each with ``records``."""
        return [self.topic, f"{self.topic}-right"] if self.work == "join" else [self.topic]

    @property
    def is_two_stages(self) -> bool:
        """Whether records are sent on by one stage and counted by the next."""
        return self.work in ("rekey", "shuffle")

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
        more["output_every"] = OUTPUT_EVERY
        join = {"join_within_ms": JOIN_WITHIN_MS, "join_grace_ms": JOIN_GRACE_MS}
        return json.dumps(asdict(self) | {"topic": self.topic} | more | join)

    @classmethod
    def decode(cls, text: str) -> Self:
        """What ``encode`` wrote."""
        fields = json.loads(text)
        return cls(**{name: value for name, value in fields.items() if name in cls.__dataclass_fields__})


def number_in(value: bytes) -> int:
    """The number that stands in a value."""
    number: int = NUMBER.unpack_from(value, NUMBER_AT)[0]
    return number


def other_key_in(value: bytes) -> bytes:
    """The key that a value goes to behind a re-key step."""
    return value[:NUMBER_AT]


def of(
    work: WorkName, records: int, keys: int | None, value_bytes: int | None = None, **options: Any
) -> Workload:
    """The workload of a size; unless told, restores have five records of each key, shuffled ones 1 KiB."""
    if work in RESTORES:
        keys = keys or max(1, records // _CHANGELOG_RECORDS_PER_KEY)
    size_bytes = value_bytes or (_SHUFFLED_VALUE_BYTES if work == "shuffle" else _VALUE_BYTES)
    return Workload(work, records, records // 5, keys or 100_000, value_bytes=size_bytes, **options)
