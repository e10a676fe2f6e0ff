"""The first position in a source partition: committed when a task first opens it, with a note of that in the catalog.

Both are written in one transaction. So a partition that is noted and has no committed position has lost it: a tool
deleted it, or it expired while the application was stopped. Read from its start, input would count twice. A partition
that is not noted was never opened, whatever else is committed: it was added to the topic, or the source to the code.

Tasks with changelogs have no need of it: their commit records hold their positions. The note of a partition decides
between two that open it at the same moment: whoever finds it there leaves the position as it is.
See ``docs/decisions/0038-first-positions.md``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.encoding import CatalogItem
from stateflow.catalog.model import Catalog, StageEntry
from stateflow.errors import InputPositionLost
from stateflow.failpoints import reach
from stateflow.log.base import Cluster, Committed
from stateflow.log.together import Together
from stateflow.record import TopicPartition
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.wiring import TaskWiring


@dataclass(frozen=True, slots=True)
class _First:
    """A source partition that is opened for the first time; ``offset_next`` is None where a position is committed."""

    app: str
    stage: str
    source: TopicPartition
    offset_next: int | None


class FirstPositions:
    """Commits where tasks begin that never committed. Thread-safe; tasks that open together are written together."""

    def __init__(self, cluster: Cluster, settings: WorkerSettings) -> None:
        self._cluster = cluster
        self._from_end = settings.start_from == "latest"
        self._write = Together(self._write_all) if settings.restore_threads else self._write_all

    def completed(
        self, wiring: TaskWiring, catalog: Catalog, committed: Mapping[TopicPartition, Committed]
    ) -> Mapping[TopicPartition, Committed]:
        """The committed positions, with those of source partitions that had none.

        ``catalog`` was read before ``committed`` was, and after the fence. Raises ``InputPositionLost``.
        """
        if wiring.changelogs:
            return committed
        entry = catalog.stages[wiring.stage.name]
        new = [source for source in wiring.sources if not is_begun(entry, source)]
        missing = [source for source in wiring.sources if source not in committed]
        _refuse_lost(wiring, [source for source in missing if source not in new])
        if not new:
            return committed
        logs = self._cluster.ranges([source for source in new if source in missing])
        starts = {at: log.offset_next if self._from_end else log.offset_first for at, log in logs.items()}
        reach("open.before_first")
        self._write([_First(wiring.app, wiring.stage.name, source, starts.get(source)) for source in new])
        if not missing:
            return committed
        found = self._cluster.committed(wiring.group, missing)
        _refuse_lost(wiring, [source for source in missing if source not in found])
        return {**committed, **found}

    def _write_all(self, firsts: Collection[_First]) -> Mapping[_First, None]:
        for app in {first.app for first in firsts}:
            self._write_of(app, [first for first in firsts if first.app == app])
        return {}

    def _write_of(self, app: str, firsts: Collection[_First]) -> None:
        def decide(current: Catalog | None) -> list[CatalogItem]:
            assert current is not None, "it was read before the task was opened"
            noted = {name: _noted(entry, firsts) for name, entry in current.stages.items()}
            return [entry for name, entry in noted.items() if entry != current.stages[name]]

        def offsets(current: Catalog | None) -> dict[TopicPartition, Committed]:
            assert current is not None, "it was read before the task was opened"
            return {
                first.source: Committed(first.offset_next)
                for first in firsts
                if first.offset_next is not None and not is_begun(current.stages[first.stage], first.source)
            }

        ControlTopic(self._cluster, app).change(decide, offsets)


def is_begun(entry: StageEntry, source: TopicPartition) -> bool:
    """Whether the catalog notes that a first position in a source partition was committed."""
    return source.partition in entry.begun.get(source.topic, ())


def _noted(entry: StageEntry, firsts: Collection[_First]) -> StageEntry:
    begun = {topic: set(partitions) for topic, partitions in entry.begun.items()}
    for first in firsts:
        if first.stage == entry.name:
            begun.setdefault(first.source.topic, set()).add(first.source.partition)
    return msgspec.structs.replace(
        entry, begun={topic: tuple(sorted(found)) for topic, found in begun.items()}
    )


def _refuse_lost(wiring: TaskWiring, lost: list[TopicPartition]) -> None:
    if lost:
        raise InputPositionLost(
            f"the committed position of {wiring.app!r} in {', '.join(map(str, lost))} is gone: a tool has deleted it,"
            " or it expired while the application was stopped (the brokers' offsets.retention.minutes). What was read"
            " before would be read again, and count twice.",
            action="choose: `stateflow reset APP` begins anew, state and all; `stateflow reset APP --to-earliest`"
            " keeps the state and reads these partitions again from their start; to go on from another place, set"
            f" it: `kafka-consumer-groups.sh --group {wiring.group} --topic {lost[0].topic} --reset-offsets"
            " --to-datetime … --execute` (or --to-latest).",
            app=wiring.app,
            positions=[str(source) for source in lost],
        )
