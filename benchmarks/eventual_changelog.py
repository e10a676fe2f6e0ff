"""Continuous eventual checkpointing: intensity against throughput, log and recovery (the experiment of DSN 2011).

    python benchmarks/eventual_changelog.py --records 1000000 --rounds 3

Starts its own broker. Windows of a minute are counted per key; every change logged (coalesced per commit) stands
beside eventual changelogs of falling intensity, in turns, round by round. After the run the worker is taken to be
killed with its disk: the time to open the tasks again is the recovery, of restore and replay. ``u`` is the input
to replay, ``q`` the stretch of the changelog behind the oldest open window, both in offset slots at the moment of
the kill. One JSON object on the last line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from word_minutes import Variant, WordMinutes, feed

import stateflow as sf
from stateflow.log.base import Cluster
from stateflow.log.kafka import connect
from stateflow.testing.broker import open_test_broker
from stateflow.testing.costs.running import Took

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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--commit-interval", type=float, default=0.2, help="seconds")
    parser.add_argument("--broker", help="embedded (default), docker, or host:port")
    given = parser.parse_args()
    variants = (BASE, *(eventual(intensity) for intensity in INTENSITIES))
    rounds: list[dict[str, Lived]] = []
    with open_test_broker(given.broker) as broker, tempfile.TemporaryDirectory() as folder:
        cluster = connect(broker.bootstrap)
        feed(cluster, given.records, given.keys, minutes=3)
        for round_ in range(-1, given.rounds):  # the first warms up
            lived: dict[str, Lived] = {}
            turn = round_ % len(variants)
            for variant in variants[turn:] + variants[:turn]:
                disk = Path(folder) / f"{variant.name}-{round_}"
                lived[variant.name] = live_and_recover(cluster, variant, round_, disk, given.commit_interval)
                print(
                    f"round {round_}: {variant.name} {lived[variant.name].took.seconds:.2f} s",
                    file=sys.stderr,
                )
            if round_ >= 0:
                rounds.append(lived)
        cluster.close()
    result = {
        "records": given.records,
        "rounds": given.rounds,
        "commit_interval_seconds": given.commit_interval,
        "variants": {variant.name: summary(rounds, variant.name) for variant in variants},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
