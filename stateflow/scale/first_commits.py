"""Where the tasks of a new generation begin: said in the changelogs themselves, as their first commit.

Whoever moves state into new changelogs ends each of them with a commit record, so that the first owner of a task finds
its input position with one short read of each end, whatever the guarantee. Tasks that have no changelog have it beside
their committed offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stateflow.catalog.model import Catalog, GenerationEntry
from stateflow.catalog.names import repartition_topic
from stateflow.catalog.stages import stage_changelogs
from stateflow.changelog.commit_record import COMMIT_KEY, CommitRecord
from stateflow.changelog.event_time import EventTime
from stateflow.changelog.position import InputPosition, to_metadata
from stateflow.log.base import Cluster, Committed
from stateflow.log.stable_ranges import stable_ranges
from stateflow.record import TopicPartition


@dataclass(frozen=True, slots=True)
class FirstCommit:
    """One task's changelogs in the new generation, and what of its input they stand for."""

    changelogs: Sequence[TopicPartition]
    position: InputPosition

    def group_offsets(self) -> dict[TopicPartition, Committed]:
        """What the consumer group holds beside it."""
        metadata = "" if self.changelogs else to_metadata(self.position)
        return {source: Committed(at, metadata) for source, at in self.position.offsets.items()}


def first_commits(
    cluster: Cluster,
    catalog: Catalog,
    stage: str,
    generation: GenerationEntry,
    event_times: Mapping[int, EventTime],
) -> list[FirstCommit]:
    """For each task of a re-keyed stage: all of its input is unread, and event time is what it is given."""
    app, number = catalog.app.app, generation.generation
    topics = [repartition_topic(app, step.name, number) for step in catalog.stages[stage].rekeys]
    sources = [TopicPartition(topic, at) for topic in topics for at in range(generation.partitions)]
    begin = {source: log.offset_first for source, log in cluster.ranges(sources).items()}
    return [
        FirstCommit(
            list(stage_changelogs(catalog, stage, partition, number).values()),
            InputPosition(
                {source: offset for source, offset in begin.items() if source.partition == partition},
                event_times.get(partition, EventTime()),
            ),
        )
        for partition in range(generation.partitions)
    ]


def write_commit_records(cluster: Cluster, app: str, generation: int, commits: Sequence[FirstCommit]) -> None:
    """End each changelog with its commit record, in one transaction; on return they are readable.

    A second attempt writes them again, which changes nothing.
    """
    changelogs = [changelog for commit in commits for changelog in commit.changelogs]
    if not changelogs:
        return
    writer = cluster.writer(f"{app}-first-commits-g{generation}")
    try:
        writer.begin()
        for commit in commits:
            value = CommitRecord(0, 0, 0, commit.position).encode()
            for topic, partition in commit.changelogs:
                writer.send(topic, COMMIT_KEY, value, partition=partition)
        writer.commit()
    finally:
        writer.close()
    stable_ranges(cluster, changelogs)
