"""What exactly-once and the paranoid commit mode cost against at-least-once, at the same commit interval.

    python benchmarks/guarantees.py --records 1000000 --rounds 5

Starts its own broker. Windows of a minute are counted per key; the variants take turns in every round, the order
turning with the rounds, so that a slow minute of the machine does not fall on one of them. Every variant is compared
with at-least-once of its own round. One JSON object on the last line: medians and spreads.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from word_minutes import Variant, WordMinutes, arguments, in_turns

from stateflow.log.base import Cluster
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
    given = arguments(__doc__, rounds=5, commit_interval_seconds=1.0)

    def measure(cluster: Cluster, variant: Variant, round_: int, folder: Path) -> Took:
        site = WordMinutes(cluster, variant, round_, folder, given.commit_interval)
        took, _ = site.run()
        site.delete()
        return took

    rounds = in_turns(given, VARIANTS, 10, measure)
    result = {
        "records": given.records,
        "rounds": given.rounds,
        "commit_interval_seconds": given.commit_interval,
        "variants": {variant.name: ratios(rounds, variant.name) for variant in VARIANTS},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
