"""What happens to a topic's old records: compaction, retention, or both, and whether segments go to remote storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

UNLIMITED = -1
"""Kafka's "no limit" for retention."""


@dataclass(frozen=True, slots=True)
class Cleanup:
    """The settings of a topic that decide which records the broker removes; the defaults are a plain changelog's."""

    policy: str = "compact"
    """As Kafka writes it: ``compact``, ``delete``, or both with a comma."""
    retention_ms: int = UNLIMITED
    """Counts only where ``policy`` names delete; ``UNLIMITED`` for none."""
    retention_bytes: int = UNLIMITED
    """Per partition."""
    tiered: bool = False
    """True when closed segments are copied to remote storage (KIP-405)."""

    @classmethod
    def from_config(cls, config: Mapping[str, str]) -> Cleanup:
        """From a topic's effective settings; without ``cleanup.policy`` Kafka's default, delete."""
        return cls(
            policy=config.get("cleanup.policy", "delete").replace(" ", ""),
            retention_ms=int(config.get("retention.ms", UNLIMITED)),
            retention_bytes=int(config.get("retention.bytes", UNLIMITED)),
            tiered=config.get("remote.storage.enable", "false") == "true",
        )

    @property
    def compacts(self) -> bool:
        """True when the log cleaner works on the topic."""
        return "compact" in self.policy.split(",")

    @property
    def deletes(self) -> bool:
        """True when retention removes whole segments, the newest records of keys among them."""
        limited = self.retention_ms != UNLIMITED or self.retention_bytes != UNLIMITED
        return "delete" in self.policy.split(",") and limited
