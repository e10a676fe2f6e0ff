"""The compaction step: which changelog carries most that is superseded, and a restore time worth asking for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from shell import Shell

from stateflow.compaction import changelog_bytes
from stateflow.compaction.admin import ClusterAdmin

SHARES_OF_NOW = (0.5, 0.6, 0.75, 0.9, 1.0, 1.5, 3.0, 10.0)
"""Restore times to ask for, as shares of today's: the first that compaction can hold is taken."""
WATCH = ("--seconds", "0.5")
SETTLE_SECONDS = 60
TRANSACTION_TIMEOUT = "10s"


class Tuned(NamedTuple):
    """What was asked for and what came of it."""

    topic: str
    superseded_share: float
    records: int
    live: int
    now_seconds: float
    asked_seconds: float
    changes: dict[str, str]
    settled: dict[str, Any]


def measured(shell: Shell, rates: dict[str, float]) -> list[dict[str, Any]]:
    """Every changelog as the tool measures it, each at the update rate that this run had."""
    return [
        found
        for topic, rate in rates.items()
        for found in shell.json("compaction", "measure", "--topic", topic, "--rate", f"{rate:.0f}", *WATCH)
    ]


def restore_seconds(found: dict[str, Any]) -> float:
    """How long a measured changelog takes to restore as it is."""
    rate = found["restore"]
    return float(rate["fixed_seconds"] + found["records"] / rate["records_per_second"])


def live_records(found: dict[str, Any]) -> int:
    """Records that a finished compaction keeps."""
    return int(found["live_keys"] + found["tombstones"])


def tune(shell: Shell, found: list[dict[str, Any]], folder: Path) -> Tuned:
    """Apply the recommended policy to the changelog with the most superseded records, and wait for it."""
    worst = max(found, key=lambda topic: topic["records"] - live_records(topic))
    file = folder / "measurement.json"
    file.write_text(json.dumps(worst), encoding="utf-8")
    now = restore_seconds(worst)
    goal = ["--transaction-timeout", TRANSACTION_TIMEOUT, "--topic", worst["topic"]]
    for share in SHARES_OF_NOW:
        asked = now * share
        within = ["--restore-within", f"{asked:.2f}s"]
        (recommended,) = shell.json("compaction", "recommend", *goal, *within, "--measurement", str(file))
        if recommended["reachable"]:
            break
    rate = worst["restore"]["records_per_second"]
    given = ["--rate", f"{worst['updates_per_second']:.0f}", "--restore-rate", f"{rate:.0f}", *WATCH]
    lines = shell.json("compaction", "apply", *goal, *within, *given, "--wait", f"{SETTLE_SECONDS}s")
    changes: dict[str, str] = next(line["applied"]["changes"] for line in lines if "applied" in line)
    settled: dict[str, Any] = next(line["settled"] for line in lines if "settled" in line)
    share = 1 - live_records(worst) / max(1, worst["records"])
    return Tuned(worst["topic"], share, worst["records"], live_records(worst), now, asked, changes, settled)


def changelog_sizes(brokers: str, topics: list[str]) -> dict[str, int]:
    """Bytes of each changelog as the broker reports them."""
    admin = ClusterAdmin(brokers)
    try:
        return {topic: changelog_bytes(admin, topic) for topic in topics}
    finally:
        admin.close()
