"""Thousands of histories, each from one seed, over the real task, worker, takeover, restore and repartition.

``simulate(range(1000))`` runs them and reports; ``replay(seed)`` runs one again, the same to the last step, and makes
what failed as small as it can be.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from stateflow import failpoints
from stateflow.errors import StateCorrupt
from stateflow.lab.faults.simulation.acting import act, come_to_rest
from stateflow.lab.faults.simulation.history import History, Profile, Step, generate
from stateflow.lab.faults.simulation.oracle import Finding, examine, group_ahead
from stateflow.lab.faults.simulation.recreating import recreated
from stateflow.lab.faults.simulation.traffic_checks import examine_traffic
from stateflow.lab.faults.simulation.verb_checks import examine_verb
from stateflow.lab.faults.simulation.verbs import verb_history
from stateflow.lab.faults.simulation.window_checks import examine_minutes
from stateflow.lab.faults.simulation.world import World
from stateflow.lab.pool import process_pool
from stateflow.lab.quiet import quiet
from stateflow.operators.steps import timers as timing

Kind = Profile | Literal["verbs"]
_CHUNK_SEEDS = 50
_DAMAGED_MAX = 4
_EXAMINE = {"minutes": examine_minutes, "traffic": examine_traffic}


@dataclass(frozen=True, slots=True)
class Ended:
    """How one history ended."""

    history: History
    findings: tuple[Finding, ...]
    lines: tuple[str, ...]
    """What happened, one line each."""
    injected: Counter[tuple[str, str]]
    reached: Counter[str]
    errors: Counter[str]
    batchings: int
    """Different ways in which input was cut into batches."""
    judged: Counter[str]
    """What was compared with the oracle: ``late`` records, ``windows``."""

    @property
    def trace_hash(self) -> str:
        """SHA-256 of everything that happened: equal for two runs of one seed."""
        return hashlib.sha256("\n".join([*self.lines, *map(str, self.findings)]).encode()).hexdigest()

    def text(self) -> str:
        """The seed, what it is, what happened and what was found."""
        what = self.history
        head = (
            f"seed {what.seed}: {what.profile}, {what.verb or what.application}, {what.guarantee}"
            f"{', paranoid' if what.paranoid else ''}{', opens slowly' if what.opens_slowly else ''}"
            f"{', commits slowly' if what.commits_slowly else ''}"
        )
        found = [f"⇒ {finding.kind} ({finding.check}): {finding.message}" for finding in self.findings]
        return "\n".join([head, *(f"  {line}" for line in self.lines), *found])


@dataclass(slots=True)
class SimulationReport:
    """What many histories came to. Failures name their seeds, which ``replay`` takes."""

    seeds: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Of all processes together: what one core would need."""
    injected: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(fault, place) → how often; a place is a call (``before writer.commit``) or a failpoint."""
    reached: Counter[str] = field(default_factory=Counter)
    """Failpoint → how often a process came to it."""
    errors: Counter[str] = field(default_factory=Counter)
    """Typed errors with which processes ended."""
    profiles: Counter[str] = field(default_factory=Counter)
    batchings: int = 0
    judged: Counter[str] = field(default_factory=Counter)
    failures: dict[str, list[int]] = field(default_factory=dict)
    """``lost``, ``twice``, ``silent`` → seeds."""
    examples: dict[int, str] = field(default_factory=dict)
    """Seed → its first finding."""

    @property
    def seeds_per_cpu_minute(self) -> float:
        """How fast it goes on one core that has nothing else to do."""
        return 60 * self.seeds / self.cpu_seconds if self.cpu_seconds else 0.0

    @property
    def is_clean(self) -> bool:
        """True when no promise was broken."""
        return not self.failures

    @property
    def failpoints_missed(self) -> list[str]:
        """Failpoints that no process came to."""
        return sorted(set(failpoints.worker_points()) - self.reached.keys())

    def add(self, ended: Ended) -> None:
        """Count one history."""
        self.seeds += 1
        self.injected.update(ended.injected)
        self.reached.update(ended.reached)
        self.errors.update(ended.errors)
        self.profiles["verbs" if ended.history.verb else ended.history.profile] += 1
        self.batchings += ended.batchings
        self.judged.update(ended.judged)
        for kind in sorted({finding.kind for finding in ended.findings}):
            self.failures.setdefault(kind, []).append(ended.history.seed)
        if ended.findings:
            first = ended.findings[0]
            self.examples[ended.history.seed] = f"{first.kind} ({first.check}): {first.message}"

    def merge(self, other: SimulationReport) -> None:
        """Add another report's counts; the seconds are the caller's to measure."""
        self.seeds += other.seeds
        self.cpu_seconds += other.cpu_seconds
        self.batchings += other.batchings
        for mine, theirs in (
            (self.injected, other.injected),
            (self.reached, other.reached),
            (self.errors, other.errors),
            (self.profiles, other.profiles),
            (self.judged, other.judged),
        ):
            mine.update(theirs)  # type: ignore[arg-type]  # counters of the same kind, side by side
        for kind, seeds in other.failures.items():
            self.failures.setdefault(kind, []).extend(seeds)
        self.examples.update(other.examples)

    def as_dict(self) -> dict[str, object]:
        """As JSON takes it."""
        by_fault: dict[str, dict[str, int]] = {}
        for (fault, place), count in sorted(self.injected.items()):
            by_fault.setdefault(fault, {})[place] = count
        return {
            "seeds": self.seeds,
            "seconds": round(self.seconds, 1),
            "cpu_seconds": round(self.cpu_seconds, 1),
            "seeds_per_cpu_minute": round(self.seeds_per_cpu_minute),
            "profiles": dict(sorted(self.profiles.items())),
            "batchings": self.batchings,
            "late": self.judged["late"],
            "windows": self.judged["windows"],
            "results": self.judged["results"],
            "injected": by_fault,
            "failpoints_reached": len(self.reached),
            "failpoints_missed": self.failpoints_missed,
            "errors": dict(sorted(self.errors.items())),
            **{kind: self.failures.get(kind, []) for kind in ("lost", "twice", "silent")},
        }


def simulate(
    seeds: Iterable[int],
    *,
    processes: int = 1,
    profile: Kind | None = None,
    on_progress: Callable[[SimulationReport], None] | None = None,
) -> SimulationReport:
    """Run the histories of many seeds. Nothing is raised for a broken promise: the report has it.

    ``profile`` makes all of them about one thing, or has them happen to the verbs of the study of operators, one after
    the other. ``on_progress`` is told now and then how far it is.
    """
    started = time.monotonic()
    report = SimulationReport()
    for part in _parts(list(seeds), processes, profile):
        report.merge(part)
        report.seconds = time.monotonic() - started
        if on_progress is not None:
            on_progress(report)
    return report


def _parts(seeds: list[int], processes: int, profile: Kind | None) -> Iterator[SimulationReport]:
    chunks = [seeds[first : first + _CHUNK_SEEDS] for first in range(0, len(seeds), _CHUNK_SEEDS)]
    work = partial(_simulate_chunk, profile=profile)
    if processes == 1:
        yield from map(work, chunks)
        return
    with process_pool(processes) as pool:
        yield from pool.map(work, chunks)


def _simulate_chunk(seeds: Sequence[int], profile: Kind | None) -> SimulationReport:
    report = SimulationReport()
    started = time.process_time()
    with quiet():
        for seed in seeds:
            report.add(run(history_of(seed, profile)))
    report.cpu_seconds = time.process_time() - started
    return report


def run(history: History) -> Ended:
    """Let one history happen."""
    world = World(history)
    in_turns = history.application == "minutes" and history.seed % 2
    with failpoints.handled(world.at), _turns_of(1 if in_turns else timing.WINDOWS_PER_TURN):
        try:
            findings = _findings(world)
        finally:
            world.close()
    notes = world.notes
    return Ended(
        history,
        tuple(findings),
        tuple(notes.lines),
        notes.injected,
        notes.reached,
        notes.errors,
        len(notes.batches),
        notes.judged,
    )


@contextmanager
def _turns_of(windows: int) -> Iterator[None]:
    """Windows that are due close in turns of so many: histories have few of them, and commits between are wanted."""
    before = timing.WINDOWS_PER_TURN, timing.WINDOWS_PER_CHUNK
    timing.WINDOWS_PER_TURN, timing.WINDOWS_PER_CHUNK = windows, min(windows, timing.WINDOWS_PER_CHUNK)
    try:
        yield
    finally:
        timing.WINDOWS_PER_TURN, timing.WINDOWS_PER_CHUNK = before


def _findings(world: World) -> list[Finding]:
    at_once: list[Finding] = []
    world.on_torn = lambda torn_world: at_once.extend(group_ahead(torn_world))
    for step in world.history.steps:
        if step.verb == "recreate":
            return recreated(world, step)
        act(world, step)
        if world.problems:
            break
        if at_once:
            return at_once
    for _ in range(_DAMAGED_MAX):
        come_to_rest(world)
        try:
            check = _EXAMINE.get(world.history.application, examine) if world.played is None else examine_verb
            return check(world)
        except StateCorrupt:  # found by looking, as a reader would; whoever has the store open starts again
            world.notes.struck("corrupt", "found", "a damaged store was found")
            for machine in world.machines:
                if machine.worker is not None:
                    world.bury(machine)
    return [Finding("silent", "progress", f"stores are still damaged after {_DAMAGED_MAX} restarts")]


def history_of(seed: int, profile: Kind | None = None) -> History:
    """The history of a seed."""
    return verb_history(seed) if profile == "verbs" else generate(seed, profile)


def replay(seed: int, profile: Kind | None = None, *, shortest: bool = True) -> Ended:
    """Run one seed again. A history that fails is made as short as it still fails in the same way."""
    with quiet():
        ended = run(history_of(seed, profile))
        return shortened(ended) if shortest and ended.findings else ended


def shortened(ended: Ended) -> Ended:
    """Leave out steps, one after another, as long as what is found stays of the same kind and check."""
    wanted = {(finding.kind, finding.check) for finding in ended.findings}
    index = len(ended.history.steps) - 1
    while index >= 0:
        steps = ended.history.steps
        shorter = run(ended.history.only(_without(steps, index)))
        if wanted & {(finding.kind, finding.check) for finding in shorter.findings}:
            ended = shorter
        index -= 1
    return ended


def _without(steps: Sequence[Step], index: int) -> tuple[Step, ...]:
    return (*steps[:index], *steps[index + 1 :])
