"""What the tuner is asked for: a restore time, and the margins to keep."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stateflow.compaction.settings.legal import require_number
from stateflow.errors import ConfigError
from stateflow.log.kafka import KafkaOptions

DEFAULT_TRANSACTION_TIMEOUT_MS = KafkaOptions().transaction_timeout_ms
"""What this library's own writers use unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Objective:
    """Restore within so many seconds, at the least broker CPU; everything else is a bound."""

    restore_within_seconds: float
    restorers: int = 1
    """Workers (or processes) that restore the topic's partitions at the same time."""
    margin: float = 0.1
    """Share of the record budget kept free for what the model and the restore rate get wrong."""
    rate_headroom: float = 1.25
    """The bound must hold up to this many times the measured update rate."""
    live_headroom: float = 1.05
    """The bound must hold up to this many times the measured number of keys."""
    disk_bytes_max: float | None = None
    cpu_cores_max: float | None = None
    """The most CPU that the broker may spend: then the shortest restore for it is looked for."""
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS
    """Of the producers of a transactional changelog; its records stay uncleaned for at least so long."""
    replay_seconds_max: float | None = None
    """The slowest reader that must see every tombstone; ten restores, and at least a minute, when not given."""

    def __post_init__(self) -> None:
        if not 0 < self.restore_within_seconds < math.inf or not 1 <= self.restorers < math.inf:
            raise ConfigError(
                "A restore objective needs a time above 0 and at least one restorer.",
                action="Give for example --restore-within 20s --restorers 1.",
            )
        headrooms = (self.rate_headroom, self.live_headroom)
        if not 0 <= self.margin < 1 or not all(1 <= headroom < math.inf for headroom in headrooms):
            raise ConfigError(
                "The margin is a share in [0, 1), headrooms are factors of at least 1.",
                action="Leave them out to use 0.1, 1.25 and 1.05.",
            )
        require_number("disk_bytes_max", self.disk_bytes_max)
        require_number("cpu_cores_max", self.cpu_cores_max)
        require_number("transaction_timeout_ms", self.transaction_timeout_ms)
        require_number("replay_seconds_max", self.replay_seconds_max)

    def parallelism(self, partitions: int) -> float:
        """By how much the restorers shorten a restore: each takes whole partitions."""
        return partitions / math.ceil(partitions / self.restorers)

    @property
    def tombstone_guard_ms(self) -> int:
        """The shortest ``delete.retention.ms`` under which no replay can miss a tombstone."""
        slowest = self.replay_seconds_max
        return round(1000 * (slowest if slowest is not None else max(60.0, 10 * self.restore_within_seconds)))
