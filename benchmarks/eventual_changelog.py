"""Continuous eventual checkpointing: intensity against throughput, log and recovery (the experiment of DSN 2011).

    python benchmarks/eventual_changelog.py --records 1000000 --rounds 3

Starts its own broker. Windows of a minute are counted per key; every change logged (coalesced per commit) stands
beside eventual changelogs of falling intensity, in turns, round by round. After the run the worker is taken to be
killed with its disk: the time to open the tasks again is the recovery, of restore and replay. ``u`` is the input
to replay, ``q`` the stretch of the changelog behind the oldest open window, both in offset slots at the moment of
the kill. One JSON object on the last line.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path

from word_minutes import Variant, WordMinutes, arguments, in_turns

import stateflow as sf
from stateflow.lab.costs.running import Took
from stateflow.log.base import Cluster

BASE = Variant("coalesced")
INTENSITIES = (1.0, 0.1, 0.01, 0.001)
_UNBOUNDED = 1 << 40


def eventual(intensity: float) -> Variant:
    """A variant that keeps no bound: the intensity alone decides."""
    return Variant(f"eventual-{intensity}", changelog=sf.Eventual(intensity, max_replay_records=_UNBOUNDED))


@dataclass(frozen=True, slots=True)
class Lived:
    """One variant in one round."""

    took: Took
    recovered: Took
    replay_records: int
    log_records: int
    changelog_records: int
    changelog_bytes: int


def live_and_recover(
    cluster: Cluster, variant: Variant, round_: int, folder: Path, commit_interval_seconds: float
) -> Lived:
    """Run to the end of the input, die, open the tasks on an empty disk."""
    site = WordMinutes(cluster, variant, round_, folder, commit_interval_seconds)
    took, extents = site.run()
    recovered = site.recover()
    records, size_bytes = site.logged()
    site.delete()
    return Lived(
        took,
        recovered,
        sum(each.replay_records for each in extents),
        sum(each.log_records for each in extents),
        records,
        size_bytes,
    )


def summary(rounds: list[dict[str, Lived]], name: str) -> dict[str, object]:
    """A variant against the coalesced changelog, round by round."""
    mine = [lived[name] for lived in rounds]
    throughput = [lived[BASE.name].took.seconds / lived[name].took.seconds for lived in rounds]
    cpu = [lived[name].took.cpu_seconds / lived[BASE.name].took.cpu_seconds for lived in rounds]
    return {
        "throughput_ratio": round(statistics.median(throughput), 3),
        "throughput_ratio_spread": [round(min(throughput), 3), round(max(throughput), 3)],
        "cpu_ratio": round(statistics.median(cpu), 3),
        "u_replay_slots": round(statistics.median(each.replay_records for each in mine)),
        "q_log_slots": round(statistics.median(each.log_records for each in mine)),
        "changelog_records": round(statistics.median(each.changelog_records for each in mine)),
        "changelog_bytes": round(statistics.median(each.changelog_bytes for each in mine)),
        "recovery_seconds": round(statistics.median(each.recovered.seconds for each in mine), 3),
        "recovery_cpu_seconds": round(statistics.median(each.recovered.cpu_seconds for each in mine), 3),
    }


def main() -> None:
    """Parse, run, print."""
    given = arguments(__doc__, rounds=3, commit_interval_seconds=0.2)

    def measure(cluster: Cluster, variant: Variant, round_: int, folder: Path) -> Lived:
        return live_and_recover(cluster, variant, round_, folder, given.commit_interval)

    variants = (BASE, *(eventual(intensity) for intensity in INTENSITIES))
    rounds = in_turns(given, variants, 3, measure)
    result = {
        "records": given.records,
        "rounds": given.rounds,
        "commit_interval_seconds": given.commit_interval,
        "variants": {variant.name: summary(rounds, variant.name) for variant in variants},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
