"""What a study of faults came to, as one JSON object: the matrix on a real broker, the simulation, the planted bugs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stateflow.failpoints import POINTS, phase_of
from stateflow.lab.faults.matrix.case import Result
from stateflow.lab.faults.planted.bugs import Catch
from stateflow.lab.faults.simulation.simulate import SimulationReport

Injected = Mapping[str, Mapping[str, int]]
"""Fault → phase → how often."""


@dataclass(slots=True, kw_only=True)
class StudyReport:
    """Everything that one study found. ``is_clean`` decides about its exit code."""

    mode: str
    seed: int
    results: Sequence[Result] = ()
    simulation: SimulationReport | None = None
    planted: Sequence[Catch] = ()
    """What became of the hunt for each bug that was planted on purpose."""
    seconds: float = 0.0

    @property
    def bad(self) -> list[Result]:
        """Cases of the matrix in which something is wrong."""
        return [result for result in self.results if result.is_bad]

    @property
    def not_injected(self) -> list[Result]:
        """Cases that came to nothing, and so say nothing."""
        return [result for result in self.results if not result.injected]

    @property
    def is_clean(self) -> bool:
        """True when nothing was lost, twice, silently wrong or stuck, and every planted bug was caught."""
        found = self.as_dict()
        return not any(found[kind] for kind in ("lost", "twice", "silent", "stuck")) and all(
            catch.caught for catch in self.planted
        )

    def as_dict(self) -> dict[str, Any]:
        """The object; what each field means is in ``docs/exactly-once.md``."""
        exact = [result for result in self.results if result.case.guarantee == "exactly-once"]
        least = [result for result in self.results if result.case.guarantee == "at-least-once"]
        failures = {} if self.simulation is None else self.simulation.failures
        return {
            "study": "faults",
            "mode": self.mode,
            "seed": self.seed,
            "runs": len(self.results) + self._seeds,
            "seeds": self._seeds,
            "cases": len(self.results),
            "batchings": 0 if self.simulation is None else self.simulation.batchings,
            "late": 0 if self.simulation is None else self.simulation.judged["late"],
            "windows": 0 if self.simulation is None else self.simulation.judged["windows"],
            "injected": _added(self._injected_in_matrix(), self._injected_in_simulation()),
            "injected_on_broker": self._injected_in_matrix(),
            "injected_least": self._injected_least,
            "not_injected": [str(result.case) for result in self.not_injected],
            "repeated": [str(result.case) for result in self.results if result.repeated],
            "lost": sum(result.findings.lost for result in self.results) + len(failures.get("lost", [])),
            "twice": sum(result.findings.twice for result in exact) + len(failures.get("twice", [])),
            "twice_at_least_once": sum(result.findings.twice for result in least),
            "silent": sum(result.findings.silent for result in self.results)
            + len(failures.get("silent", [])),
            "stuck": sum(bool(result.stuck) for result in self.results),
            "failed": [f"{result.case}: {result.why}" for result in self.bad],
            "failed_seeds": failures,
            "planted_bugs": {catch.bug: catch.as_dict() for catch in self.planted},
            "planted_bugs_caught": sum(catch.caught for catch in self.planted),
            "planted_bugs_total": len(self.planted),
            "exit_codes": _named_codes(self.results),
            "simulation": None if self.simulation is None else self.simulation.as_dict(),
            "seconds": round(self.seconds, 1),
        }

    @property
    def _seeds(self) -> int:
        return 0 if self.simulation is None else self.simulation.seeds

    def _injected_in_matrix(self) -> Injected:
        struck: Counter[tuple[str, str]] = Counter()
        for result in self.results:
            if result.injected:
                struck[result.case.fault, result.case.phase] += 1
        return _nested(struck)

    @property
    def _injected_least(self) -> int:
        """How often the fault struck at the point where it struck least often."""
        struck: Counter[tuple[str, str]] = Counter()
        for result in self.results:
            struck[result.case.point, result.case.fault] += result.injected
        return min(struck.values(), default=0)

    def _injected_in_simulation(self) -> Injected:
        """A simulated fault that strikes before or after a call counts under what is called: ``writer`` and so on."""
        if self.simulation is None:
            return {}
        phases: Counter[tuple[str, str]] = Counter()
        for (fault, place), count in self.simulation.injected.items():
            phases[fault, phase_of(place if place in POINTS else place.split()[-1])] += count
        return _nested(phases)


def _nested(counts: Counter[tuple[str, str]]) -> Injected:
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for (fault, phase), count in sorted(counts.items()):
        found[fault][phase] = count
    return dict(found)


def _added(*parts: Injected) -> Injected:
    total: Counter[tuple[str, str]] = Counter()
    for part in parts:
        for fault, phases in part.items():
            for phase, count in phases.items():
                total[fault, phase] += count
    return _nested(total)


def _named_codes(results: Sequence[Result]) -> dict[str, int]:
    """Exit code of the processes → how often; JSON's names are strings."""
    codes = Counter(code for result in results for code in result.codes)
    return {str(code): count for code, count in sorted(codes.items())}
