"""A topic whose log is simulated, as a watcher sees it: ends, sizes, settings; and a measurement of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stateflow.compaction.cluster.logdirs import ReplicaSize
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.simulate import Simulation
from stateflow.compaction.model.streams import Stream
from stateflow.compaction.model.workload import RestoreRate
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.knobs import check, knobs_for
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy
from stateflow.log.base import Cluster
from stateflow.record import OffsetRange, TopicPartition

RECORD_BYTES = 571.0
CLEANER = CleanerSettings(backoff_ms=100)
BUDGET = 17_500
RESTORE = RestoreRate(100_000, 0.0, "given", 0.1)


class SimulatedTopic:
    """One topic whose log is simulated: the ends, the sizes and the settings that a watcher sees."""

    def __init__(self, stream: Stream, policy: Policy) -> None:
        self.simulation = Simulation(stream.partitions, policy, CLEANER, Costs())
        self.overrides = policy.changes_from(Policy())
        self.alterations = 0
        self.broken: Exception | None = None
        self.sizes: list[tuple[float, int]] = []

    def ranges(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
        self._fail()
        first = next(iter(partitions))
        return {first: OffsetRange(0, self.simulation.appended_total)}

    def replica_sizes(self, topics: Iterable[str]) -> list[ReplicaSize]:
        self._fail()
        return [ReplicaSize(1, TopicPartition(next(iter(topics)), 0), self.simulation.size_bytes)]

    def topic_config(self, topic: str) -> dict[str, str]:
        return Policy().to_config() | self.overrides

    def topic_overrides(self, topic: str) -> dict[str, str]:
        return dict(self.overrides)

    def alter_topic(
        self, topic: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        check({name: value for name, value in changes.items() if value is not None}, knobs_for())
        if validate_only:
            return
        self.alterations += 1
        for name, value in changes.items():
            if value is None:
                self.overrides.pop(name, None)
            else:
                self.overrides[name] = as_broker_answers(name, value)
        self.simulation.policy = Policy.from_config(self.topic_config(topic))

    def _fail(self) -> None:
        if self.broken is not None:
            raise self.broken


def as_broker_answers(name: str, value: str) -> str:
    """Kafka parses a double and writes it anew: 0 comes back as 0.0."""
    return str(float(value)) if name == "min.cleanable.dirty.ratio" else value


def measurement(policy: Policy, rate: float, live: int) -> Measurement:
    return Measurement.known(
        "t",
        live_keys=live,
        updates_per_second=rate,
        record_bytes=RECORD_BYTES,
        restore=RESTORE,
        cleaner=CLEANER,
        policy=policy,
    )


def cluster_of(topic: SimulatedTopic) -> Cluster:
    return topic  # type: ignore[return-value]  # a watcher asks a cluster for ranges alone
