"""Which cases make up the crash matrix: each failpoint × fault, as often as wanted, where it is reached."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from stateflow.catalog.model import Guarantee
from stateflow.config import CommitMode
from stateflow.errors import ConfigError
from stateflow.failpoints import Action, phase_of, worker_points

FaultKind = Literal["kill", "stop", "raise", "hold", "hold-and-cut", "lose-answer", "duplicate"]
"""The first three strike at a failpoint; the others are what a network does to one EndTxn request."""

PROCESS_FAULTS: tuple[Action, ...] = get_args(Action)
NETWORK_FAULTS: tuple[FaultKind, ...] = ("hold", "hold-and-cut", "lose-answer", "duplicate")
NETWORK_POINTS = ("network.goes_on", "network.dies")
"""Not failpoints: what the worker whose EndTxn is spoilt does while that request is on its way."""

Situation = Literal[
    "fresh",
    "reopened",
    "emptied",
    "bulk",
    "torn",
    "running",
    "imaging",
    "collecting",
    "installing",
    "rebalancing",
    "lost",
    "stopping",
    "trimming",
    "snapshotting",
    "saving",
    "refilling",
    "copying",
    "promoting",
    "placing",
    "network",
]
"""What is going on when a point is reached, see ``matrix_situations``."""

_PHASES: Mapping[str, Situation] = {
    "startup": "fresh",
    "open": "reopened",
    "claim": "reopened",
    "fence": "reopened",
    "release": "rebalancing",
    "takeover": "torn",
    "restore": "emptied",
    "process": "running",
    "commit": "running",
    "flush": "running",
    "image": "imaging",
    "collect": "collecting",
    "install": "installing",
    "purge": "running",
    "handover": "rebalancing",
    "stop": "stopping",
    "trim": "trimming",
    "barrier": "snapshotting",
    "savepoint": "saving",
    "refill": "refilling",
    "standby": "copying",
    "placing": "placing",
    "network": "network",
}
_POINTS: Mapping[str, Situation] = {
    "restore.before_ingest": "bulk",
    "restore.after_ingest": "bulk",
    "handover.assigned": "reopened",
    "handover.before_start": "reopened",
    "handover.lost": "lost",
    "standby.before_promote": "promoting",
    "standby.after_promote": "promoting",
}
_HITS_MAX: Mapping[Situation, int] = {"running": 6, "reopened": 3, "imaging": 2, "installing": 2}
"""In the other situations a point is reached too seldom to wait for a later time."""

_AT_LEAST_ONCE_ONLY = ("commit.before_group", "commit.after_group")
_EXACTLY_ONCE_ONLY = (
    "commit.before_records",
    "commit.after_record",
    "commit.after_records",
    "commit.before_offsets",
    "commit.after_proof",
    "commit.before_end_txn",
    "commit.after_end_txn",
)
_EXACTLY_ONCE_PHASES = ("takeover", "network")
_SHARED_PHASES = ("claim", "fence", "release")
"""Reached only where the tasks of a worker share a writer."""
_OTHER_SHARING_PHASES = ("open", "takeover", "commit", "handover", "stop")
_ONCE_ONLY_HITS = ("handover.assigned", "purge.before", "purge.after")
_OTHER_GUARANTEE_PHASES = ("process", "commit", "flush", "open", "restore", "handover")


@dataclass(frozen=True, slots=True)
class Case:
    """One fault at one point. Everything random in it is drawn from its seed."""

    point: str
    fault: FaultKind
    repetition: int
    seed: int
    guarantee: Guarantee = "exactly-once"
    commit_mode: CommitMode = "standard"
    shared_writers: int = 0

    @property
    def phase(self) -> str:
        """The phase that its point belongs to."""
        return phase_of(self.point)

    @property
    def situation(self) -> Situation:
        """Where its point is reached; an unknown phase is looked for in a running worker."""
        return _POINTS.get(self.point) or _PHASES.get(self.phase, "running")

    @property
    def hit(self) -> int:
        """The how-manieth time at the point is struck."""
        hits_max = 1 if self.point in _ONCE_ONLY_HITS else _HITS_MAX.get(self.situation, 1)
        return random.Random(self.seed).randint(1, hits_max)  # noqa: S311 - a test's choice

    def __str__(self) -> str:
        extra = "" if self.guarantee == "exactly-once" else " at-least-once"
        extra += "" if self.commit_mode == "standard" else f" {self.commit_mode}"
        extra += " shared" if self.shared_writers else ""
        return f"{self.point}:{self.fault} #{self.repetition}{extra}"


def full_plan(seed: int, repetitions: int = 3) -> list[Case]:
    """Each point × fault ``repetitions`` times; where it differs, once more at least once, in paranoid mode, and with
    tasks that share a writer."""
    cases = [case for number in range(repetitions) for case in _sweep(seed, number)]
    for point in worker_points():
        for fault in PROCESS_FAULTS:
            if phase_of(point) in _OTHER_GUARANTEE_PHASES and point not in (
                *_AT_LEAST_ONCE_ONLY,
                *_EXACTLY_ONCE_ONLY,
            ):
                cases.append(_case(seed, point, fault, repetitions, guarantee="at-least-once"))
            if phase_of(point) in ("commit", "takeover") and point not in _AT_LEAST_ONCE_ONLY:
                cases.append(_case(seed, point, fault, repetitions, commit_mode="paranoid"))
            if phase_of(point) in _OTHER_SHARING_PHASES:
                guarantee = _guarantee(point)
                cases.append(_case(seed, point, fault, repetitions, guarantee=guarantee, shared_writers=1))
    for point in NETWORK_POINTS:
        # Repeated by something else than the client, an EndTxn may let outputs out twice here, too.
        spoilt = [fault for fault in NETWORK_FAULTS if fault != "duplicate"]
        cases += [_case(seed, point, fault, repetitions, shared_writers=1) for fault in spoilt]
    return cases


def quick_plan(seed: int, cases_max: int = 60) -> list[Case]:
    """A sample: every phase with each of its faults, then points drawn by the seed."""
    choice = random.Random(seed)  # noqa: S311 - a sample, not a secret
    sweep = _sweep(seed, 0)
    choice.shuffle(sweep)
    first: dict[tuple[str, str], Case] = {}
    for case in sweep:
        first.setdefault((case.phase, case.fault), case)
    rest = [case for case in sweep if first[case.phase, case.fault] is not case]
    chosen = [*first.values(), *rest][: max(len(first), cases_max)]
    choice.shuffle(chosen)
    return chosen


def only(cases: Iterable[Case], wanted: Sequence[str]) -> list[Case]:
    """The cases that ``point:fault``, ``point`` or ``phase`` name. Raises ``ConfigError`` where one names none."""
    kept, every = [], list(cases)
    for text in wanted:
        point, _, fault = text.partition(":")
        found = [case for case in every if point in (case.point, case.phase) and fault in ("", case.fault)]
        if not found:
            raise ConfigError(
                f"no case is called {text!r}.",
                action="name one as point:fault, point or phase; the points are"
                f" {', '.join((*worker_points(), *NETWORK_POINTS))}.",
            )
        kept += found
    return kept if wanted else every


def _sweep(seed: int, number: int) -> list[Case]:
    """Each point × fault once."""
    cases = [
        _case(
            seed,
            point,
            fault,
            number,
            guarantee=_guarantee(point),
            shared_writers=int(phase_of(point) in _SHARED_PHASES),
        )
        for point in worker_points()
        for fault in PROCESS_FAULTS
    ]
    for point in NETWORK_POINTS:
        for fault in NETWORK_FAULTS:
            # Repeated by something else than the client: outputs are once in paranoid mode only.
            mode: CommitMode = "paranoid" if fault == "duplicate" else "standard"
            cases.append(_case(seed, point, fault, number, commit_mode=mode))
    return cases


def _guarantee(point: str) -> Guarantee:
    return "at-least-once" if point in _AT_LEAST_ONCE_ONLY else "exactly-once"


def _case(
    seed: int,
    point: str,
    fault: FaultKind,
    number: int,
    *,
    guarantee: Guarantee = "exactly-once",
    commit_mode: CommitMode = "standard",
    shared_writers: int = 0,
) -> Case:
    text = f"{seed} {point} {fault} {number} {guarantee} {commit_mode}{' shared' * shared_writers}"
    return Case(point, fault, number, zlib.crc32(text.encode()), guarantee, commit_mode, shared_writers)
