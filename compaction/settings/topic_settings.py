"""A compaction policy: the settings of one topic that decide how large its log grows and what cleaning costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from stateflow.compaction.settings.knobs import NEVER_MS, check, knobs_of_any_release
from stateflow.errors import ConfigError

UNTHROTTLED = 1e300
"""No limit in bytes per second: finite, because JSON has no infinity."""

CONFIG_NAMES: dict[str, str] = {
    "segment_ms": "segment.ms",
    "segment_bytes": "segment.bytes",
    "segment_index_bytes": "segment.index.bytes",
    "dirty_ratio": "min.cleanable.dirty.ratio",
    "min_lag_ms": "min.compaction.lag.ms",
    "max_lag_ms": "max.compaction.lag.ms",
    "delete_retention_ms": "delete.retention.ms",
    "file_delete_delay_ms": "file.delete.delay.ms",
}
"""Field of :class:`Policy` → Kafka's topic setting."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One topic's compaction settings; the defaults are Kafka's own."""

    segment_ms: int = 604_800_000
    """A segment is closed by the first append later than this after its first record."""
    segment_bytes: int = 1_073_741_824
    """A segment is closed before it would outgrow this."""
    segment_index_bytes: int = 10_485_760
    """Preallocated for each of a segment's two indexes at every roll: most of what a roll costs."""
    dirty_ratio: float = 0.5
    """The cleaner takes a partition when dirty / (clean + dirty) bytes of closed segments is strictly above."""
    min_lag_ms: int = 0
    """Closed segments younger than this are not cleaned."""
    max_lag_ms: int = NEVER_MS
    """A dirty record older than this makes its partition eligible, whatever the ratio."""
    delete_retention_ms: int = 86_400_000
    """Tombstones and transaction markers stay at least this long in the cleaned part."""
    file_delete_delay_ms: int = 60_000
    """Replaced segment files stay on disk for this long, and count in no log size."""

    @classmethod
    def from_config(cls, config: Mapping[str, str]) -> Policy:
        """The policy in a topic's effective settings; settings that are missing count as Kafka's defaults."""
        values: dict[str, int | float] = {}
        for field in fields(cls):
            text = config.get(CONFIG_NAMES[field.name])
            if text is not None:
                values[field.name] = float(text) if field.name == "dirty_ratio" else int(text)
        return cls(**values)  # type: ignore[arg-type]

    def to_config(self) -> dict[str, str]:
        """All settings as Kafka names and texts."""
        return {name: _text(getattr(self, field)) for field, name in CONFIG_NAMES.items()}

    def changes_from(self, other: Policy) -> dict[str, str]:
        """The settings in which this policy differs from another, as Kafka names and texts."""
        mine, theirs = self.to_config(), other.to_config()
        return {name: text for name, text in mine.items() if text != theirs[name]}

    def with_config(self, changes: Mapping[str, str]) -> Policy:
        """This policy with some settings replaced, named as Kafka names them.

        Raises ``ConfigError`` for other settings, and for values that no release of Kafka takes.
        """
        unknown = set(changes) - set(CONFIG_NAMES.values())
        if unknown:
            raise ConfigError(
                f"Not a compaction setting of a topic: {', '.join(sorted(unknown))}.",
                action=f"Use one of {', '.join(sorted(CONFIG_NAMES.values()))}.",
            )
        check(changes, knobs_of_any_release())
        return Policy.from_config({**self.to_config(), **changes})


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The broker-wide settings of the log cleaner, and which broker they were read from."""

    threads: int = 1
    backoff_ms: int = 15_000
    """How long a cleaner thread sleeps after it found nothing to do; hides every topic setting that is faster."""
    dedupe_buffer_bytes: int = 134_217_728
    """Shared by all threads, zero-filled before every pass; 24 bytes per key, used up to the load factor."""
    load_factor: float = 0.9
    io_max_bytes_per_second: float = UNTHROTTLED
    index_interval_bytes: int = 4096
    transaction_max_timeout_ms: int = 900_000
    enabled: bool = True
    """``log.cleaner.enable``: without it no topic of the broker is compacted, whatever its settings."""

    @classmethod
    def from_config(cls, config: Mapping[str, str]) -> CleanerSettings:
        """From a broker's effective settings; settings that are missing count as Kafka's defaults."""
        base = cls()
        io_max = float(config.get("log.cleaner.io.max.bytes.per.second", UNTHROTTLED))
        return cls(
            threads=int(config.get("log.cleaner.threads", base.threads)),
            backoff_ms=int(config.get("log.cleaner.backoff.ms", base.backoff_ms)),
            dedupe_buffer_bytes=int(config.get("log.cleaner.dedupe.buffer.size", base.dedupe_buffer_bytes)),
            load_factor=float(config.get("log.cleaner.io.buffer.load.factor", base.load_factor)),
            io_max_bytes_per_second=min(io_max, UNTHROTTLED),
            index_interval_bytes=int(config.get("log.index.interval.bytes", base.index_interval_bytes)),
            transaction_max_timeout_ms=int(
                config.get("transaction.max.timeout.ms", base.transaction_max_timeout_ms)
            ),
            enabled=config.get("log.cleaner.enable", "true") != "false",
        )

    @property
    def keys_per_pass(self) -> int:
        """Distinct dirty keys that one thread can index in one pass."""
        return int(self.dedupe_buffer_bytes / self.threads / 24 * self.load_factor)

    def scaled(self, **changes: float) -> CleanerSettings:
        """These settings with some replaced."""
        return replace(self, **changes)  # type: ignore[arg-type]


def _text(value: float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
