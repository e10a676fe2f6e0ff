"""Running a benchmark: every side in every round, in an order that turns, on one broker."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from stateflow.lab.bench.inputs import fill
from stateflow.lab.bench.our_topics import batches_of
from stateflow.lab.bench.result import Ran, Round, in_turns, records_digest, summary
from stateflow.lab.bench.side import Place, Side
from stateflow.lab.bench.workload import WRITES, Workload
from stateflow.log.base import Cluster, TopicSpec
from stateflow.log.kafka import connect

Tell = Callable[[str], None]


def measure(
    load: Workload, sides: Sequence[Side], brokers: str, folder: Path, rounds: int, tell: Tell
) -> dict[str, Any]:
    """The benchmark's result, as JSON objects have it; ``folder`` is for the sides' state.

    Each round runs every side once, in an order that turns.
    """
    with closing(connect(brokers)) as cluster:
        tell(f"writing {load.records} records")
        others = [topic for side in sides for topic in side.inputs(load)]
        fill(cluster, load, [load.topic, *others])
        done: list[Round] = []
        for number in range(rounds):
            found: dict[str, Ran] = {}
            for side in in_turns(sides, number):
                found[side.name] = ran = _run(cluster, load, side, brokers, folder, number)
                tell(
                    f"round {number + 1}, {side.name}: {ran.records_per_second:,.0f} records/s,"
                    f" {ran.cpu_seconds_per_million:.2f} CPU s per million"
                )
            done.append({side.name: found[side.name] for side in sides})
    return summary(done)


def _run(cluster: Cluster, load: Workload, side: Side, brokers: str, folder: Path, number: int) -> Ran:
    app_id = f"bench-{load.work}-{side.name}-{number}"
    place = Place(brokers, app_id, folder / app_id)
    _drop(cluster, app_id)
    written = [f"{app_id}-output"] if load.work in WRITES else []
    wanted = [*side.empty_topics(load), *written]
    empty = [topic for topic in wanted if topic not in cluster.list_topics()]
    cluster.create([TopicSpec(topic, load.partitions) for topic in empty])
    try:
        ran = side.run(load, place)
        return replace(ran, digest=ran.digest + _digest_of(cluster, written[0], load)) if written else ran
    finally:
        shutil.rmtree(place.state_dir, ignore_errors=True)
        _drop(cluster, app_id)


def _digest_of(cluster: Cluster, topic: str, load: Workload) -> str:
    """Of what a reader of committed records finds. What consumers tell depends on the order in which they were sent."""
    has_order = load.work == "shuffle"
    return records_digest(
        (batch.source.partition, key or b"", b"" if has_order else value or b"")
        for batch in batches_of(topic, load.partitions, cluster)
        for key, value in zip(batch.keys, batch.values, strict=True)
    )


def _drop(cluster: Cluster, app_id: str) -> None:
    """Take a run's own topics off the broker; Quix's names have the id in their midst."""
    own = [topic for topic in cluster.list_topics() if topic.startswith(app_id) or f"__{app_id}--" in topic]
    if own:
        cluster.delete(own)
