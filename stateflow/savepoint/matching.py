"""Whether a savepoint fits an application as it is to be now: what is kept, what begins empty, what would be lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from stateflow.catalog.compatibility import store_differences
from stateflow.catalog.model import Catalog, StageEntry
from stateflow.checkpoint.savepoints import Savepoint
from stateflow.errors import CatalogIncompatible, SavepointUnfit
from stateflow.log.base import Cluster
from stateflow.record import OffsetRange, TopicPartition

SourcePolicy = Literal["offsets", "earliest", "latest"]
"""Where a source is read from that is not the savepoint's own topic: at the same offsets (it is a copy, record by
record), from its start, or from its end."""


@dataclass(frozen=True, slots=True)
class Match:
    """What a restore does with each store and each queue of records in flight."""

    kept: tuple[str, ...]
    added: tuple[str, ...]
    dropped: tuple[str, ...]
    steps_kept: tuple[str, ...]
    steps_dropped: tuple[str, ...]
    """Re-key steps that the application no longer has, and whose records in flight are lost with them."""


def match(savepoint: Savepoint, expected: Catalog, *, allow_dropped_state: bool) -> Match:
    """Compare a savepoint with the application that is to go on from it.

    Raises ``CatalogIncompatible`` naming every difference that state would not survive, and ``SavepointUnfit`` when
    state or records in flight have no place in it and that was not allowed.
    """
    differences = list(_differences(savepoint, expected))
    if differences:
        raise CatalogIncompatible(
            f"the savepoint {savepoint.name!r} of {savepoint.app!r} does not fit the code: {'; '.join(differences)}.",
            action="go back to the code that fits, or give the changed step another name: it begins empty, and what"
            " the old one kept is dropped with --allow-dropped-state.",
            savepoint=savepoint.name,
            differences=differences,
        )
    had = {store.name for store in savepoint.stores}
    steps = {step.name for stage in expected.stages.values() for step in stage.rekeys}
    queued = {queue.step: 0 for queue in savepoint.queues}
    for queue in savepoint.queues:
        queued[queue.step] += queue.records
    found = Match(
        kept=tuple(sorted(had & expected.stores.keys())),
        added=tuple(sorted(expected.stores.keys() - had)),
        dropped=tuple(sorted(had - expected.stores.keys())),
        steps_kept=tuple(sorted(queued.keys() & steps)),
        steps_dropped=tuple(sorted(step for step in queued.keys() - steps if queued[step])),
    )
    if (found.dropped or found.steps_dropped) and not allow_dropped_state:
        lost = [*(f"store {name!r}" for name in found.dropped)]
        lost += [f"{queued[step]} records on their way to {step!r}" for step in found.steps_dropped]
        raise SavepointUnfit(
            f"the application no longer has what the savepoint {savepoint.name!r} keeps: {', '.join(lost)}.",
            action="bring the steps back under their names, or drop it with --allow-dropped-state.",
            dropped=[*found.dropped, *found.steps_dropped],
        )
    return found


def _differences(savepoint: Savepoint, expected: Catalog) -> Iterator[str]:
    stages = {stage.name: stage for stage in savepoint.stages}
    for store in savepoint.stores:
        wanted = expected.stores.get(store.name)
        if wanted is None:
            continue
        yield from store_differences(wanted, store)
        stage, now = stages[store.stage], expected.stages.get(store.stage)
        if now is not None:
            yield from _stage_differences(store.name, stage, now)


def _stage_differences(store: str, then: StageEntry, now: StageEntry) -> Iterator[str]:
    """Keys must be in the partitions where their state is put."""
    if {step.name for step in then.rekeys} != {step.name for step in now.rekeys}:
        yield f"store {store!r} is behind {_steps(now)} in the code, behind {_steps(then)} in the savepoint"
    elif (then.sources, then.source_partitions) != (now.sources, now.source_partitions):
        yield (
            f"store {store!r} follows {', '.join(now.sources)} with {now.source_partitions} partitions, in the"
            f" savepoint {', '.join(then.sources)} with {then.source_partitions}"
        )


def _steps(stage: StageEntry) -> str:
    return ", ".join(repr(step.name) for step in stage.rekeys) or "no re-key step"


def source_positions(
    cluster: Cluster, savepoint: Savepoint, expected: Catalog, policy: SourcePolicy | None
) -> dict[TopicPartition, int]:
    """Where the restored application begins to read each source partition.

    The savepoint's offsets are those of a topic, known by its id. For another topic of that name ``policy`` says what
    to do. Sources that the savepoint does not know are left to ``start_from``. Raises ``SavepointUnfit``.
    """
    saved = {at: offset for task in savepoint.tasks for at, offset in task.position().offsets.items()}
    positions: dict[TopicPartition, int] = {}
    for stage in expected.stages.values():
        for topic in stage.sources:
            if topic in savepoint.source_ids:
                count = stage.source_partitions or 0
                log = cluster.ranges(TopicPartition(topic, partition) for partition in range(count))
                own = {at: offset for at, offset in saved.items() if at.topic == topic}
                is_same = stage.source_ids.get(topic) == savepoint.source_ids[topic]
                positions |= _topic_positions(topic, own, log, "offsets" if is_same else policy)
    return positions


def _topic_positions(
    topic: str,
    saved: Mapping[TopicPartition, int],
    log: Mapping[TopicPartition, OffsetRange],
    policy: SourcePolicy | None,
) -> dict[TopicPartition, int]:
    if policy is None:
        raise SavepointUnfit(
            f"the source {topic} is not the topic that the savepoint was made from (it has another topic id).",
            action="say where to read it: --sources offsets if it is a copy with the same offsets, --sources earliest"
            " or --sources latest otherwise.",
            topic=topic,
        )
    lost = sorted(str(at) for at in saved.keys() - log.keys())
    if lost:
        raise SavepointUnfit(
            f"the savepoint was made from partitions that {topic} does not have: {', '.join(lost)}.",
            action="give the topic as many partitions as it had.",
            topic=topic,
        )
    if policy == "earliest":
        return {at: found.offset_first for at, found in log.items()}
    if policy == "latest":
        return {at: found.offset_next for at, found in log.items()}
    for at, offset_next in saved.items():
        found = log[at]
        if not found.offset_first <= offset_next <= found.offset_next:
            raise SavepointUnfit(
                f"{at} has the offsets {found.offset_first} to {found.offset_next} now, and the savepoint goes on at"
                f" {offset_next}.",
                action="restore from a newer savepoint; or read it from where there is something with --sources"
                " earliest, which accepts the gap.",
                topic=topic,
                partition=at.partition,
                offset=offset_next,
            )
    # A partition that was added since: all of it is behind the barrier.
    return {at: saved.get(at, found.offset_first) for at, found in log.items()}
