"""The compaction step: the busiest changelog, and the shortest restore time that compaction can hold for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from shell import CommandFailed, Shell

from stateflow.compaction import changelog_bytes
from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.control.size_wait import SizeWait, wait_for_size
from stateflow.errors import ObjectiveUnreachable
from stateflow.log.base import Cluster

SHARES_OF_NOW = (0.5, 0.75, 1.0, 2.0, 5.0, 20.0)
"""Restore times to ask for, as shares of what a restore takes now: the first that can be held is taken."""
WATCH = ("--seconds", "0.5")
SETTLE_SECONDS = 45.0
SHRUNK, ABOVE_LIVE = 0.9, 1.4
"""The cleaner has been everywhere when so much of the bytes is left, or so much more than the live records take."""
TRANSACTION_TIMEOUT = "10s"
UNREACHABLE_EXIT_CODE = ObjectiveUnreachable.exit_code


class Tuned(NamedTuple):
    """What was asked for and what came of it."""

    records: int
    live: int
    now_seconds: float
    asked_seconds: float
    changes: dict[str, str]
    waited: SizeWait

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
    per_record = 1 / restore["records_per_second"] + restore["record_bytes"] / restore["bytes_per_second"]
    now = restore["fixed_seconds"] + found["records"] * per_record
    goal = ["--topic", topic, "--transaction-timeout", TRANSACTION_TIMEOUT]
    given = [*rate, "--restore-rate", f"{1 / per_record:.0f}"]
    asked, changes = applied(shell, now, goal, given, found, folder)
    live = found["live_keys"] + found["tombstones"]
    live_bytes = live * (
        found["live_record_bytes_high"] or found["live_record_bytes"] or found["record_bytes"]
    )
    wanted_bytes = min(found["size_bytes"] * SHRUNK, live_bytes * ABOVE_LIVE)
    waited = cleaned(brokers, cluster, topic, wanted_bytes, changes)
    return Tuned(found["records"], live, now, asked, changes, waited)


def applied(
    shell: Shell, now: float, goal: list[str], given: list[str], found: dict[str, Any], folder: Path
) -> tuple[float, dict[str, str]]:
    """Apply the policy for the shortest restore time that can be held; returns it and the settings changed.

    ``apply`` measures again, so it may refuse what was just possible: then the next longer time is asked for.
    """
    file = folder / "measurement.json"
    file.write_text(json.dumps(found), encoding="utf-8")
    for share in SHARES_OF_NOW:
        asked = max(0.01, now * share)
        within = ["--restore-within", f"{asked:.2f}s"]
        measured, either = ["--measurement", str(file)], (0, UNREACHABLE_EXIT_CODE)
        (recommended,) = shell.json("compaction", "recommend", *goal, *within, *measured, expect=either)
        if not recommended["reachable"]:
            continue
        # It measures anew, and may find that it cannot be held after all: an error follows then, and nothing changes.
        outcome, *_ = shell.json("compaction", "apply", *goal, *within, *given, expect=either)
        if outcome.get("applied") is not None:
            return asked, outcome["applied"]["changes"]
    raise CommandFailed(f"compaction cannot hold a restore of {asked:.2f} s for {found['topic']}.")


def cleaned(
    brokers: str, cluster: Cluster, topic: str, wanted_bytes: float, changes: dict[str, str]
) -> SizeWait:
    """Wait for the cleaner. An idle changelog rolls no segment by itself, so it is touched now and then."""
    roll_seconds = int(changes.get("segment.ms", 0)) / 1000
    can_show = bool(changes) and roll_seconds < SETTLE_SECONDS / 2
    admin = ClusterAdmin(brokers)
    try:
        return wait_for_size(
            cluster,
            admin,
            topic,
            bytes_at_most=wanted_bytes,
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
