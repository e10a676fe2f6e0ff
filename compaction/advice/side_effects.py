"""What a recommendation does beside keeping a restore short: to replicas, other topics, files and the page cache."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stateflow.compaction.advice.recommendation import Outcome, Recommendation
from stateflow.compaction.cluster.neighbours import Neighbours
from stateflow.compaction.sensing.cleaner_metrics import moved_bytes_per_second
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.knobs import illegal_from_kafka_5
from stateflow.compaction.settings.units import cores, duration, size, with_unit

FILES_PER_SEGMENT = 3
"""A log, which is held open, and two indexes, which are mapped into memory (``vm.max_map_count``)."""
FILES_MANY = 20_000
"""Of one topic: a third of the memory maps that Linux allows a process by default."""
BUSY_MUCH = 0.3
"""Of a cleaner thread's time, for one topic."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a policy costs beside the restore that it gives; of all replicas together where not said otherwise."""

    cores: float
    """CPU of cleaning and of closing segments."""
    segments: float
    """Of one replica of one partition at its fullest, replaced files that are not deleted yet included."""
    files: float
    busy: float
    """Share of the cleaner threads' time on a broker that holds a replica of every partition."""
    turn_seconds: float
    """For how long such a broker's cleaner is away from other topics, while it does every partition once."""
    moved_bytes_per_second: float
    """Read and written by cleaners, through the page cache."""


@dataclass(frozen=True, slots=True)
class SideEffects:
    """The footprint now and then, and what else is affected."""

    now: Footprint | None
    """None when the topic is never cleaned now: its segments and files grow without bound."""
    then: Footprint | None
    replication: int
    neighbours: Neighbours | None
    """None when they may not be seen."""
    illegal_later: tuple[str, ...]
    """Settings that would be in force, and are illegal from Kafka 5 on."""

    def sentences(self) -> tuple[str, ...]:
        """For people, the costs first."""
        told = [self._cpu(), self._files(), self._others(), self._cache(), self._later()]
        return tuple(sentence for sentence in told if sentence)

    def _cpu(self) -> str:
        if self.then is None or self.replication == 1:
            return ""
        each = self.then.cores / self.replication
        return (
            f"Every replica is cleaned by its own broker: {cores(each)} of a core {self.replication} times over, "
            f"{cores(self.then.cores)} in all."
        )

    def _files(self) -> str:
        if self.then is None:
            return ""
        before = "more and more" if self.now is None else f"{_count(self.now.segments)}"
        after = _count(self.then.segments)
        many = " Mind vm.max_map_count and the limit of open files." if self.then.files > FILES_MANY else ""
        return (
            f"Segments of a partition at its fullest: {before} now, {after} then; about {_count(self.then.files)} "
            f"files of all replicas (a log and two indexes each).{many}"
        )

    def _others(self) -> str:
        if self.then is None:
            return ""
        if self.neighbours is None:
            whose = "Other compacted topics could not be counted; they"
        elif not self.neighbours.topics:
            return ""
        else:
            whose = (
                f"{self.neighbours.topics:,} other compacted topic(s) of {size(self.neighbours.size_bytes)}"
            )
        warning = " That is much: watch max-dirty-percent." if self.then.busy > BUSY_MUCH else ""
        return (
            f"{whose} share the cleaner threads: this one takes {cores(self.then.busy)} of their time, "
            f"up to {duration(self.then.turn_seconds)} at a stretch.{warning}"
        )

    def _cache(self) -> str:
        if self.then is None:
            return ""
        before = "" if self.now is None else f" (now {size(self.now.moved_bytes_per_second)}/s)"
        return (
            f"Cleaners read and write {size(self.then.moved_bytes_per_second)}/s{before} through the page cache, which "
            "other topics' readers share."
        )

    def _later(self) -> str:
        if not self.illegal_later:
            return ""
        return (
            f"Illegal from Kafka 5 on (KIP-1030): {', '.join(self.illegal_later)}. Before that upgrade roll back, or "
            "recommend with --kafka 5.0; how brokers will treat values that stand is still discussed (KIP-1294)."
        )


def side_effects(found: Measurement, chosen: Recommendation, neighbours: Neighbours | None) -> SideEffects:
    """Of setting what was recommended, by the same predictions."""
    policy = chosen.best.policy.to_config()
    illegal = tuple(f"{name}={with_unit(name, policy[name])}" for name in illegal_from_kafka_5(policy))
    return SideEffects(
        now=_footprint(found, chosen.current),
        then=_footprint(found, chosen.best),
        replication=found.replication,
        neighbours=neighbours,
        illegal_later=illegal,
    )


def _footprint(found: Measurement, outcome: Outcome) -> Footprint | None:
    if not math.isfinite(outcome.size_max_bytes) or not math.isfinite(outcome.cycle_seconds):
        return None
    load, policy = found.workload(), outcome.policy
    live_bytes = load.live_records * load.live_record_bytes / load.partitions
    clean = math.ceil(live_bytes / policy.segment_bytes) or 1
    cleaned_each_pass = clean + outcome.segments_per_cycle
    waiting = cleaned_each_pass * policy.file_delete_delay_ms / 1000 / outcome.cycle_seconds
    segments = cleaned_each_pass + 1 + waiting
    threads = min(found.cleaner.threads, load.partitions)
    return Footprint(
        cores=found.replication * (outcome.cleaner_cores + outcome.roll_cores),
        segments=segments,
        files=FILES_PER_SEGMENT * segments * load.partitions * found.replication,
        busy=outcome.cleaner_cores / threads,
        turn_seconds=outcome.cleaner_cores * outcome.cycle_seconds / threads,
        moved_bytes_per_second=found.replication * moved_bytes_per_second(load, outcome.cycle_seconds),
    )


def _count(number: float) -> str:
    return f"{number:,.0f}"
