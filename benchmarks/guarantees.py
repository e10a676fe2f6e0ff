"""What the guarantees cost in throughput and CPU, at the same commit interval.

    python benchmarks/guarantees.py --records 1000000 --rounds 5

Starts its own broker. Windows of a minute are counted per key; the variants take turns in every round, the order
turning with the rounds, so that a slow minute of the machine does not fall on one of them. Every variant is compared
with `plain` of its own round: at-least-once without any transaction, so without the fence that keeps a former owner
from writing over its successor's state. Nobody can choose that; it is here as the ground to measure from. One JSON
object on the last line: medians and spreads.
"""

from __future__ import annotations

import json
import statistics
from contextlib import closing
from pathlib import Path

from word_minutes import Variant, WordMinutes, arguments, in_turns

from stateflow.lab.costs.running import Took
from stateflow.log.kafka import KafkaCluster, connect
from stateflow.log.kafka.endtxn_guard import EndTxnGuard
from stateflow.log.kafka.writer import KafkaWriter

BASE = Variant("plain", guarantee="at-least-once")
VARIANTS = (
    BASE,
    Variant("at-least-once", guarantee="at-least-once"),
    Variant("exactly-once"),
    Variant("paranoid", commit_mode="paranoid"),
)


class Unfenced(KafkaCluster):
    """Whose writers know no transactions."""

    def writer(self, transactional_id: str | None = None) -> KafkaWriter | EndTxnGuard:  # noqa: ARG002 - forgotten
        """A writer without a transactional id, whatever is asked for."""
        return super().writer()


def ratios(rounds: list[dict[str, Took]], name: str) -> dict[str, object]:
    """A variant against the ground, round by round."""
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

    def measure(cluster: KafkaCluster, variant: Variant, round_: int, folder: Path) -> Took:
        with closing(Unfenced(cluster.bootstrap) if variant is BASE else connect(cluster.bootstrap)) as own:
            site = WordMinutes(own, variant, round_, folder, given.commit_interval)
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
