"""What hosted Kafka services allow to be set, as data: narrower ranges, closed settings, and where that is documented.

Amazon's and Microsoft's pages were read in November 2026; Confluent's lower bounds were taken over from earlier. The
broker validates every change before it is made, so a range that has changed since shows as a refusal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stateflow.errors import ConfigError

TIERED = "+tiered"
"""Behind a provider's name: for a topic whose closed segments go to remote storage."""
_NEVER_MS = 9_223_372_036_854_775_807
_INT32_MAX = 2_147_483_647
_BROKER_SETTINGS = frozenset(
    {"log.cleaner.threads", "log.cleaner.backoff.ms", "log.cleaner.dedupe.buffer.size"}
)
_TOPIC_SETTINGS = frozenset(
    {
        "segment.ms",
        "segment.bytes",
        "segment.index.bytes",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "max.compaction.lag.ms",
        "delete.retention.ms",
        "file.delete.delay.ms",
    }
)

Ranges = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Provider:
    """What a hosted Kafka narrows: legal ranges of some settings (ends included), and settings that cannot be set."""

    name: str
    ranges: Ranges
    fixed: frozenset[str]
    source: str
    """Where it is documented, and for what."""
    tiered: Ranges = field(default_factory=dict)
    """Ranges of topics with remote storage, beside the others."""

    @property
    def closed(self) -> bool:
        """True when no setting of compaction can be set at all."""
        return self.fixed >= _TOPIC_SETTINGS


_ALL = (
    Provider(
        "apache",
        {},
        frozenset(),
        "Apache Kafka, self-managed: https://kafka.apache.org/documentation/#topicconfigs",
    ),
    Provider(
        "confluent-cloud",
        {
            "segment.ms": (14_400_000, _NEVER_MS),
            "segment.bytes": (52_428_800, 1_073_741_824),
            "max.compaction.lag.ms": (21_600_000, _NEVER_MS),
            "delete.retention.ms": (0, 60_566_400_000),
        },
        _BROKER_SETTINGS | {"min.cleanable.dirty.ratio", "segment.index.bytes", "file.delete.delay.ms"},
        "https://docs.confluent.io/cloud/current/topics/manage.html: limits of Basic, Standard and Enterprise "
        "clusters; Dedicated ones allow less strict values",
    ),
    Provider(
        "msk",
        {},
        frozenset(),
        "https://docs.aws.amazon.com/msk/latest/developerguide/msk-guidelines-tiered-storage-topic-level-config.html: "
        "standard brokers; with tiered storage segments of at least 48 MiB or 10 minutes",
        tiered={"segment.ms": (600_000, _NEVER_MS), "segment.bytes": (50_331_648, _INT32_MAX)},
    ),
    Provider(
        "msk-serverless",
        {},
        _BROKER_SETTINGS | _TOPIC_SETTINGS,
        "https://docs.aws.amazon.com/msk/latest/developerguide/serverless-config.html: of topics only cleanup.policy, "
        "compression, sizes of messages, timestamps and retention can be set",
    ),
    Provider(
        "azure-event-hubs",
        {},
        _BROKER_SETTINGS | _TOPIC_SETTINGS,
        "https://learn.microsoft.com/en-us/azure/event-hubs/log-compaction: the service decides when it compacts",
    ),
)
PROVIDERS: Mapping[str, Provider] = {provider.name: provider for provider in _ALL}
"""Providers by name."""


def provider_named(name: str) -> Provider:
    """A provider; a name that ends with ``TIERED`` has the ranges for remote storage. Raises ``ConfigError``."""
    plain = name.removesuffix(TIERED)
    if plain not in PROVIDERS:
        raise ConfigError(
            f"Unknown Kafka provider {plain!r}.", action=f"Use one of {', '.join(sorted(PROVIDERS))}."
        )
    found = PROVIDERS[plain]
    if plain == name:
        return found
    return Provider(name, {**found.ranges, **found.tiered}, found.fixed, found.source, found.tiered)


def require_open(name: str) -> None:
    """Raise ``ConfigError`` for a service where no compaction setting can be set."""
    found = provider_named(name)
    if found.closed:
        raise ConfigError(
            f"{found.name} lets nobody set how topics are compacted.",
            action=f"Shorten restores by images, standbys or more restorers; see {found.source}.",
        )
