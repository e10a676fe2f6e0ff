"""The compaction step: the busiest changelog, and the shortest restore time that compaction can hold for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from shell import Shell

from stateflow.compaction import changelog_bytes
from stateflow.compaction.admin import ClusterAdmin
from stateflow.compaction.settle import Settled, settle
from stateflow.log.base import Cluster

SHARES_OF_NOW = (0.5, 0.75, 1.0, 2.0, 5.0, 20.0)
"""Restore times to ask for, as shares of what a restore takes now: the first that can be held is taken."""
WATCH = ("--seconds", "0.5")
SETTLE_SECONDS = 45.0
SHRUNK = 0.9
"""The cleaner has been there when so much of the bytes, or less, is left."""
TRANSACTION_TIMEOUT = "10s"


class Tuned(NamedTuple):
    """What was asked for and what came of it."""

    records: int
    live: int
    now_seconds: float
    asked_seconds: float
    changes: dict[str, str]
    settled: Settled

    @property
    def superseded_share(self) -> float:
        """Share of the records that newer ones had superseded."""
        return 1 - self.live / self.records if self.records else 0.0


def tune(shell: Shell, brokers: str, cluster: Cluster, busiest: tuple[str, float], folder: Path) -> Tuned:
    """Measure a changelog, apply the recommended policy, and wait for the broker's cleaner.

    ``busiest`` is the topic and the updates per second that it had in this run: nobody writes to it now.
    """
    topic, updates_per_second = busiest
    rate = ["--rate", f"{updates_per_second:.0f}", *WATCH]
    (found,) = shell.json("compaction", "measure", "--topic", topic, *rate)
    restore = found["restore"]
    now = restore["fixed_seconds"] + found["records"] / restore["records_per_second"]
    goal = ["--topic", topic, "--transaction-timeout", TRANSACTION_TIMEOUT]
    asked = shortest(shell, now, goal, found, folder)
    given = [*rate, "--restore-rate", f"{restore['records_per_second']:.0f}"]
    (applied,) = shell.json("compaction", "apply", *goal, "--restore-within", f"{asked:.2f}s", *given)
    changes: dict[str, str] = applied["applied"]["changes"]
    settled = cleaned(brokers, cluster, topic, found["size_bytes"], changes)
    return Tuned(found["records"], found["live_keys"] + found["tombstones"], now, asked, changes, settled)


def shortest(shell: Shell, now: float, goal: list[str], found: dict[str, Any], folder: Path) -> float:
    """The shortest of some restore times that compaction can hold, in seconds; the longest if none."""
    file = folder / "measurement.json"
    file.write_text(json.dumps(found), encoding="utf-8")
    asked = now
    for share in SHARES_OF_NOW:
        asked = max(0.01, now * share)
        within = ["--restore-within", f"{asked:.2f}s", "--measurement", str(file)]
        (recommended,) = shell.json("compaction", "recommend", *goal, *within)
        if recommended["reachable"]:
            break
    return asked


def cleaned(brokers: str, cluster: Cluster, topic: str, size_bytes: int, changes: dict[str, str]) -> Settled:
    """Wait for the cleaner. An idle changelog rolls no segment by itself, so it is touched now and then."""
    roll_seconds = int(changes.get("segment.ms", 0)) / 1000
    can_show = bool(changes) and roll_seconds < SETTLE_SECONDS / 2
    admin = ClusterAdmin(brokers)
    try:
        return settle(
            cluster,
            admin,
            topic,
            bytes_at_most=size_bytes * SHRUNK,
            deadline_seconds=SETTLE_SECONDS if can_show else 0.0,
            touch_every_seconds=max(1.0, roll_seconds),
        )
    finally:
        admin.close()


def changelog_sizes(brokers: str, topics: list[str]) -> dict[str, int]:
    """Bytes of each changelog as the broker reports them."""
    admin = ClusterAdmin(brokers)
    try:
        return {topic: changelog_bytes(admin, topic) for topic in topics}
    finally:
        admin.close()
