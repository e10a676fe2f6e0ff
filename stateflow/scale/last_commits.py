"""Where the tasks of a generation stand, by the words of their last commits.

The commit record of a changelog says how far a task's input was processed; the group's
committed offset may be behind it after a torn commit (``docs/exactly-once.md``). And a changelog whose last
commit is only half there must be repaired by its task, which has the state to do it, before anyone copies
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from stateflow.catalog.model import Catalog
from stateflow.catalog.names import changelog_topic, task_id
from stateflow.catalog.stages import stage_changelogs, stage_inputs
from stateflow.changelog.position import InputPosition
from stateflow.changelog.sequences import CommittedEnd
from stateflow.checkpoint.tails import read_tails
from stateflow.errors import ChangelogTrimmed, CommitTorn, ReplayPending
from stateflow.log.base import Cluster, Committed
from stateflow.log.together import AskingTogether
from stateflow.record import TopicPartition
from stateflow.runtime.task.takeover import recovery_point, resolved

_LANES = 8


@dataclass(frozen=True, slots=True)
class LastCommits:
    """What the last commits of all tasks of the active generation say, read once.

    Final for as long as the tasks are fenced; before that it may change at any time.
    """

    catalog: Catalog
    ends: Mapping[tuple[str, int], CommittedEnd]
    """By stage and partition."""
    committed: Mapping[TopicPartition, Committed]
    """Of the application's group, for the inputs of all stages."""

    def refuse_torn(self) -> None:
        """Raise ``CommitTorn`` when the last commit of any task is only half visible."""
        torn = [task_id(*task) for task, end in self.ends.items() if end.is_torn]
        if torn:
            raise CommitTorn(
                f"the last commit of {', '.join(torn)} is only half visible in the changelogs.",
                action="run `stateflow scale abort` if a change was begun, then the application once, for"
                " example with"
                " `stateflow run APP --until-drained`: opening a task sets its changelogs right. Then start"
                " again.",
                tasks=torn,
            )

    def refuse_pending_replays(self) -> None:
        """Raise ``ReplayPending`` when a window is in no changelog: only its task can compute it from the input."""
        eventual = {
            store.stage for store in self.catalog.stores.values() if store.changelog_policy == "eventual"
        }
        pending = [
            task_id(stage, partition)
            for stage in sorted(eventual)
            for partition, position in self.positions(stage).items()
            if position.replay_from is not None
        ]
        if pending:
            raise ReplayPending(
                f"the eventual changelogs of {', '.join(pending)} leave out windows that are still open, or have some"
                " that wait for their turn to close.",
                action="run `stateflow scale abort` if a change was begun, then let the application run and stop"
                " cleanly, for example with `stateflow run APP --until-drained`: its last commit logs them. Then start"
                " again.",
                tasks=pending,
            )

    def positions(self, stage: str) -> dict[int, InputPosition]:
        """By partition, what each task of a stage has processed of its input; empty for one that never committed."""
        sources = stage_inputs(self.catalog, stage)
        return {
            partition: recovery_point(
                [source for source in sources if source.partition == partition],
                self.ends[stage, partition],
                self.committed,
            )
            for partition in range(self.catalog.partitions(stage))
        }


def read_last_commits(cluster: Cluster, catalog: Catalog, *, stable: bool = True) -> LastCommits:
    """One short read of the changelogs of each task, some tasks at a time: reading the end of a log is mostly waiting.

    ``stable`` waits for transactions that hold offsets: right when the tasks are fenced.
    """
    sources = [source for stage in catalog.stages for source in stage_inputs(catalog, stage)]
    committed = cluster.committed(catalog.app.app, sources, stable=stable)
    tasks = [(stage, number) for stage in catalog.stages for number in range(catalog.partitions(stage))]
    asking = AskingTogether(cluster)
    with ThreadPoolExecutor(_LANES, thread_name_prefix="last-commits") as pool:
        places = [CommitPlaces.of_task(catalog, stage, number) for stage, number in tasks]
        ends = pool.map(lambda each: each.committed_end(asking, committed), places)
        return LastCommits(catalog, dict(zip(tasks, ends, strict=True)), committed)


def refuse_trimmed_logs(cluster: Cluster, catalog: Catalog) -> None:
    """Raise ``ChangelogTrimmed`` when a changelog was deleted before images: for what reads logs alone."""
    for store in catalog.stores.values():
        topic = changelog_topic(catalog.app.app, store.name, catalog.changelog_generation(store.stage))
        sources = [TopicPartition(topic, number) for number in range(catalog.partitions(store.stage))]
        for source, log in cluster.ranges(sources).items():
            if log.offset_first > 0:
                raise ChangelogTrimmed(
                    f"{source} was deleted before images, up to {log.offset_first}, and this reads changelogs alone.",
                    action="repartition the application first, for example with `stateflow scale start` to another"
                    " number and back: the changelogs of a new generation are whole until they are trimmed again.",
                    topic=source.topic,
                    partition=source.partition,
                    low=log.offset_first,
                )


@dataclass(frozen=True, slots=True)
class CommitPlaces:
    """Where the commits of one task are recorded, as data that another process can take."""

    app: str
    changelogs: Mapping[str, TopicPartition]
    """By store."""
    inputs: Sequence[TopicPartition]

    @classmethod
    def of_task(cls, catalog: Catalog, stage: str, partition: int) -> CommitPlaces:
        """Those of the active generation."""
        changelogs = stage_changelogs(catalog, stage, partition, catalog.changelog_generation(stage))
        inputs = [source for source in stage_inputs(catalog, stage) if source.partition == partition]
        return cls(catalog.app.app, changelogs, inputs)

    def committed_end(
        self, cluster: Cluster, committed: Mapping[TopicPartition, Committed] | None = None
    ) -> CommittedEnd:
        """What is decided in the changelogs. ``committed`` are the group's offsets, if they were asked for."""
        if not self.changelogs:
            return CommittedEnd(None, {})
        if committed is None:
            committed = cluster.committed(self.app, self.inputs, stable=False)
        return resolved(read_tails(cluster, self.changelogs), committed)
