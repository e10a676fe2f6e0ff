"""The study: verbs × {straight, kills, repartition}, each on random logs."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stateflow.lab.operators.calling import calling_verbs
from stateflow.lab.operators.chaining import chain_verbs
from stateflow.lab.operators.clocked import clocked_verbs
from stateflow.lab.operators.graphs import graph_verbs
from stateflow.lab.operators.joining import table_verbs
from stateflow.lab.operators.keeping import keeping_verbs
from stateflow.lab.operators.matching import pattern_verbs
from stateflow.lab.operators.ordering import ordering_verbs
from stateflow.lab.operators.playing import MODES, Mode, Playing
from stateflow.lab.operators.records import record_verbs
from stateflow.lab.operators.simple import simple_verbs
from stateflow.lab.operators.timing import timing_verbs
from stateflow.lab.operators.verb import Results, Verb
from stateflow.lab.operators.windowing import window_verbs

QUICK_LOGS, FULL_LOGS = 3, 100
SHOWN_MAX = 20
_SHOWN_RESULTS = 3


def all_verbs() -> list[Verb]:
    """Every verb of the study."""
    streams = [*simple_verbs(), *record_verbs(), *window_verbs(), *ordering_verbs(), *pattern_verbs()]
    timed = [*timing_verbs(), *clocked_verbs(), *keeping_verbs()]
    return [*streams, *timed, *calling_verbs(), *table_verbs(), *graph_verbs(), *chain_verbs()]


@dataclass(slots=True)
class OperatorsReport:
    """What came of it."""

    cases: Counter[str] = field(default_factory=Counter)
    """By verb."""
    modes: Counter[str] = field(default_factory=Counter)
    different: Counter[str] = field(default_factory=Counter)
    disturbed: Counter[str] = field(default_factory=Counter)
    """By mode: kills that struck, repartitions."""
    results: int = 0
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def merge(self, other: OperatorsReport) -> None:
        """Add another part of the same study."""
        for name in ("cases", "modes", "different", "disturbed"):
            getattr(self, name).update(getattr(other, name))
        self.results += other.results
        self.failed += other.failed

    def as_dict(self, mode: str, seed: int) -> dict[str, Any]:
        """The study as one JSON object."""
        return {
            "study": "operators",
            "mode": mode,
            "seed": seed,
            "verbs": len(self.cases),
            "cases": self.cases.total(),
            "different": self.different.total(),
            "by_mode": dict(sorted(self.modes.items())),
            "disturbed": dict(sorted(self.disturbed.items())),
            "results": self.results,
            "by_verb": {
                name: {"cases": count, "different": self.different[name]}
                for name, count in sorted(self.cases.items())
            },
            "failed": self.failed[:SHOWN_MAX],
            "seconds": round(self.seconds, 1),
        }


def run_verb(verb: Verb, seed: int, numbers: Sequence[int], modes: Sequence[Mode] = MODES) -> OperatorsReport:
    """Put the logs of these numbers through one verb, in each mode."""
    report = OperatorsReport()
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # restarts and late records without number
    try:
        for number in numbers:
            for mode in (each for each in modes if verb.is_scalable or each != "repartition"):
                _run_case(verb, f"{seed}-{verb.name}-{number}", number, mode, report)
    finally:
        logging.disable(before)
    return report


def _run_case(verb: Verb, name: str, number: int, mode: Mode, report: OperatorsReport) -> None:
    rng = random.Random(f"operators-{name}")  # noqa: S311 - nothing secret: it must be repeatable
    rows = verb.log(rng)
    playing = Playing(verb, random.Random(f"operators-{name}-{mode}"))  # noqa: S311 - as above
    report.cases[verb.name] += 1
    report.modes[mode] += 1
    wanted = verb.results(verb.expected(rows), playing.rule)
    try:
        found = verb.results(playing.run(rows, mode), playing.rule)
    except Exception as error:  # noqa: BLE001 - whatever stops an application is a difference, too
        report.different[verb.name] += 1
        report.failed.append(f"{verb.name}, log {number}, {mode}: {type(error).__name__}: {error}")
        return
    report.disturbed[mode] += playing.disturbed
    report.results += len(wanted)
    if found != wanted:
        report.different[verb.name] += 1
        report.failed.append(f"{verb.name}, log {number}, {mode}: {_difference(wanted, found)}")


def _difference(wanted: Results, found: Results) -> str:
    missing = [each for each in wanted.items() if each not in found.items()]
    wrong = [each for each in found.items() if each not in wanted.items()]
    return f"missing {missing[:_SHOWN_RESULTS]}, instead {wrong[:_SHOWN_RESULTS]}"


def run_study(
    seed: int, logs: int, verbs: Sequence[Verb], on_verb: Callable[[Verb, OperatorsReport], None]
) -> OperatorsReport:
    """All verbs, one after the other; ``on_verb`` is told what came of each."""
    report = OperatorsReport()
    for verb in verbs:
        part = run_verb(verb, seed, range(logs))
        report.merge(part)
        on_verb(verb, part)
    return report
