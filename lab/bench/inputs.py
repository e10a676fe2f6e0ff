"""The input that every side is given, written before the first of them starts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

from stateflow.lab.bench.workload import NUMBER, NUMBER_AT, RESTORES, Workload
from stateflow.log.base import Cluster, TopicSpec
from stateflow.partitioner import partition_of

_SEED = 5
_FIRST_MS = 1_704_067_200_000
_MINUTES = 10
_CHUNK_RECORDS = 20_000
_NUMBER_MAX = 1_000
_NOISE_BYTES = 8 << 20
Chunk = tuple[list[bytes | None], list[bytes | None], list[int], list[int]]
"""Keys, values, partitions and times."""
Rows = tuple[range, list[bytes | None], list[bytes | None], list[int]]
"""Numbers of records, keys, values and partitions."""


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


def _chunks(load: Workload, seed: int) -> Iterator[Chunk]:
    rows_of = _shuffled if load.work == "shuffle" else _keyed
    times = range(0, _MINUTES * 60_000 * load.records, _MINUTES * 60_000)
    for rows, keys, values, partitions in rows_of(load, random.Random(seed)):
        yield keys, values, partitions, [_FIRST_MS + times[row] // load.records for row in rows]


def _keyed(load: Workload, draw: random.Random) -> Iterator[Rows]:
    names = [b"%016d" % number for number in range(load.keys)]
    places = [partition_of(name, load.partitions) for name in names]
    pad = _padding(load, draw)
    chosen = _in_rounds(load.keys) if load.work in RESTORES else _at_random(draw, load.keys)
    for rows in _slices(load):
        keys = [chosen(row) for row in rows]
        values: list[bytes | None] = [
            names[draw.randrange(load.keys)] + NUMBER.pack(draw.randrange(_NUMBER_MAX)) + pad() for _ in rows
        ]
        yield rows, [names[key] for key in keys], values, [places[key] for key in keys]


def _shuffled(load: Workload, draw: random.Random) -> Iterator[Rows]:
    """Random bytes without keys, to one partition after the other."""
    for rows in _slices(load):
        values: list[bytes | None] = [draw.randbytes(load.value_bytes) for _ in rows]
        yield rows, [None] * len(rows), values, [row % load.partitions for row in rows]


def _slices(load: Workload) -> Iterator[range]:
    for first in range(0, load.records, _CHUNK_RECORDS):
        yield range(first, min(load.records, first + _CHUNK_RECORDS))


def _padding(load: Workload, draw: random.Random) -> Callable[[], bytes]:
    """What is behind the number: zeros, or, where values are the state, what no compression makes smaller."""
    size_bytes = load.value_bytes - NUMBER_AT - NUMBER.size
    if load.work != "newest":
        zeros = bytes(size_bytes)
        return lambda: zeros
    noise = draw.randbytes(_NOISE_BYTES + size_bytes)

    def some() -> bytes:
        first = draw.randrange(_NOISE_BYTES)
        return noise[first : first + size_bytes]

    return some


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
