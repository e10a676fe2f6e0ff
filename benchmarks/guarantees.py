"""What exactly-once and the paranoid commit mode cost against at-least-once, at the same commit interval.

    python benchmarks/guarantees.py --records 1000000 --rounds 5

Starts its own broker. Windows of a minute are counted per key; the variants take turns in every round, the order
turning with the rounds, so that a slow minute of the machine does not fall on one of them. Every variant is compared
with at-least-once of its own round. One JSON object on the last line: medians and spreads.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from word_minutes import Variant, WordMinutes, feed

from stateflow.log.kafka import connect
from stateflow.testing.broker import open_test_broker
from stateflow.testing.costs.running import Took

BASE = Variant("at-least-once", guarantee="at-least-once")
VARIANTS = (BASE, Variant("exactly-once"), Variant("paranoid", commit_mode="paranoid"))


def ratios(rounds: list[dict[str, Took]], name: str) -> dict[str, object]:
    """A variant against at-least-once, round by round."""
    throughput = [took[BASE.name].seconds / took[name].seconds for took in rounds]
    cpu = [took[name].cpu_seconds / took[BASE.name].cpu_seconds for took in rounds]
    return {
        "seconds": round(statistics.median(took[name].seconds for took in rounds), 2),
        "cpu_seconds": round(statistics.median(took[name].cpu_seconds for took in rounds), 2),
        "throughput_ratio": round(statistics.median(throughput), 3),
        "throughput_ratio_spread": [round(min(throughput), 3), round(max(throughput), 3)],
        "cpu_ratio": round(statistics.median(cpu), 3),
        "cpu_ratio_spread": [round(min(cpu), 3), round(max(cpu), 3)],
    }


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commit-interval", type=float, default=1.0, help="seconds")
    parser.add_argument("--broker", help="embedded (default), docker, or host:port")
    given = parser.parse_args()
    rounds: list[dict[str, Took]] = []
    with open_test_broker(given.broker) as broker, tempfile.TemporaryDirectory() as folder:
        cluster = connect(broker.bootstrap)
        feed(cluster, given.records, given.keys, minutes=10)
        for round_ in range(-1, given.rounds):  # the first warms up
            took: dict[str, Took] = {}
            turn = round_ % len(VARIANTS)
            for variant in VARIANTS[turn:] + VARIANTS[:turn]:
                disk = Path(folder) / f"{variant.name}-{round_}"
                site = WordMinutes(cluster, variant, round_, disk, given.commit_interval)
                took[variant.name], _ = site.run()
                site.delete()
                print(f"round {round_}: {variant.name} {took[variant.name].seconds:.2f} s", file=sys.stderr)
            if round_ >= 0:
                rounds.append(took)
        cluster.close()
    result = {
        "records": given.records,
        "rounds": given.rounds,
        "commit_interval_seconds": given.commit_interval,
        "variants": {variant.name: ratios(rounds, variant.name) for variant in VARIANTS},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
