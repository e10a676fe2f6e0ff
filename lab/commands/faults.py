"""`stateflow study faults`: crashes, hangs, exceptions and a spoilt network, compared with an oracle, by one seed."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from stateflow.cli.options import OutputFolder, json_option
from stateflow.cli.output import emit_json, emit_pairs
from stateflow.clock import Clock, SystemClock
from stateflow.connectors.broker import EmbeddedKafka
from stateflow.lab.faults.matrix.case import Result
from stateflow.lab.faults.matrix.plan import Case, full_plan, only, quick_plan
from stateflow.lab.faults.matrix.run import LANES, run_matrix
from stateflow.lab.faults.planted.bugs import BUGS, Catch, hunt_all
from stateflow.lab.faults.report import StudyReport
from stateflow.lab.faults.simulation.simulate import SimulationReport, simulate
from stateflow.lab.faults.simulation.verbs import verbs_by_name

BROKER_SETTINGS = {
    # So many processes on few cores may keep a broker from its heartbeats; there is no other that could take over.
    "broker.session.timeout.ms": 30_000,
}
QUICK_SEEDS = 600
FULL_SEEDS = 5_000
VERBS_FROM = 500_000
"""Histories of verbs have the seeds from here on."""
_SEEDS_PER_VERB = 250
"""For so many histories of the other applications each verb has one."""
_PROCESSES = 2
_LINE_SECONDS = 2.0
_CASES_PER_BROKER = 100
"""Each leaves some ten partitions and a handful of transactional ids: a small broker grows slow with hundreds."""
_FOUND_SOMETHING = 1


class Progress:
    """One line every few seconds: what, how far, how fast, how long still."""

    def __init__(self, what: str, total: int, clock: Clock) -> None:
        self._what = what
        self._total = total
        self._clock = clock
        self._began_seconds = clock.monotonic_seconds()
        self._told_seconds = self._began_seconds

    def at(self, done: int, bad: int) -> None:
        """So many are done, and so many of them are bad."""
        now_seconds = self._clock.monotonic_seconds()
        if done < self._total and now_seconds - self._told_seconds < _LINE_SECONDS:
            return
        self._told_seconds = now_seconds
        rate = done / max(0.001, now_seconds - self._began_seconds)
        click.echo(
            f"{self._what}: {done}/{self._total}  {rate:.1f}/s  ETA {(self._total - done) / max(rate, 0.001):.0f} s"
            f"  {bad} bad",
            err=True,
        )


@contextmanager
def _bootstrap(brokers: str | None) -> Iterator[str]:
    if brokers is not None:
        yield brokers
        return
    with EmbeddedKafka(overrides=BROKER_SETTINGS) as kafka:
        yield kafka.bootstrap


@contextmanager
def _place(state_dir: Path | None) -> Iterator[Path]:
    if state_dir is not None:
        state_dir.mkdir(parents=True, exist_ok=True)
        yield state_dir
        return
    with tempfile.TemporaryDirectory(prefix="stateflow-faults-") as folder:
        yield Path(folder)


def _matrix(
    cases: Sequence[Case], brokers: str | None, state_dir: Path | None, lanes: int, clock: Clock
) -> list[Result]:
    progress = Progress("crash matrix", len(cases), clock)
    done: list[Result] = []

    def on_result(result: Result) -> None:
        done.append(result)
        if result.is_bad:
            click.echo(f"{result.case}: {result.why}\n{result.said}", err=True)
        elif not result.injected:
            click.echo(f"{result.case}: not injected", err=True)
        progress.at(len(done), sum(one.is_bad for one in done))

    with _place(state_dir) as place:
        for first in range(0, len(cases), _CASES_PER_BROKER):
            with _bootstrap(brokers) as bootstrap:
                run_matrix(cases[first : first + _CASES_PER_BROKER], bootstrap, place, on_result, lanes)
    return done


def _simulation(seed: int, seeds: int, clock: Clock) -> SimulationReport:
    progress = Progress("simulation", seeds, clock)

    def on_progress(report: SimulationReport) -> None:
        progress.at(report.seeds, sum(map(len, report.failures.values())))

    first = seed * 1_000_000  # so that neighbouring seeds of the study share no history
    report = simulate(range(first, first + seeds), processes=_PROCESSES, on_progress=on_progress)
    first += VERBS_FROM
    count = max(1, seeds // _SEEDS_PER_VERB) * len(verbs_by_name())
    progress = Progress("simulation of verbs", count, clock)
    verbs = simulate(
        range(first, first + count), processes=_PROCESSES, profile="verbs", on_progress=on_progress
    )
    report.merge(verbs)
    report.seconds += verbs.seconds
    return report


def _hunt(clock: Clock) -> list[Catch]:
    progress = Progress("planted bugs", len(BUGS), clock)
    told: list[Catch] = []

    def on_catch(catch: Catch) -> None:
        told.append(catch)
        found = f"{catch.kind} ({catch.check}), seed {catch.seed}" if catch.caught else "not found"
        click.echo(f"{catch.bug}: {found}, {catch.seeds_tried} seeds", err=True)
        progress.at(len(told), sum(not one.caught for one in told))

    return hunt_all(on_catch=on_catch, processes=_PROCESSES)


def _run(
    seed: int,
    *,
    full: bool,
    wanted: Sequence[str],
    seeds: int,
    matrix: Callable[[list[Case]], list[Result]],
    clock: Clock,
) -> StudyReport:
    began_seconds = clock.monotonic_seconds()
    report = StudyReport(mode="full" if full else "quick", seed=seed)
    if wanted:  # a replay: the case, and nothing else
        report.results = matrix(only(full_plan(seed), wanted))
    else:
        report.simulation = _simulation(seed, seeds, clock)
        report.planted = _hunt(clock)
        report.results = matrix(full_plan(seed) if full else quick_plan(seed))
    report.seconds = clock.monotonic_seconds() - began_seconds
    return report


@click.command()
@click.option(
    "--quick/--full", default=True, help="A sample in a few minutes, or each failpoint × fault three times."
)
@click.option(
    "--seed", type=int, help="Draws everything; the same seed is the same study. Chosen and told otherwise."
)
@click.option(
    "--only", "wanted", multiple=True, metavar="POINT[:FAULT]", help="Only these cases (or a whole phase)."
)
@click.option(
    "--seeds",
    type=click.IntRange(1),
    help=f"Simulated histories  [default: {QUICK_SEEDS}, full {FULL_SEEDS}]",
)
@click.option(
    "--lanes", type=click.IntRange(1, 32), default=LANES, show_default=True, help="Cases at a time."
)
@click.option("--brokers", metavar="HOST:PORT", help="A broker to use; one of its own is started otherwise.")
@click.option(
    "--state-dir",
    type=OutputFolder(),
    help="Where the cases keep their state while they run; a folder of its own otherwise.",
)
@json_option
def command(
    quick: bool,
    seed: int | None,
    wanted: tuple[str, ...],
    seeds: int | None,
    lanes: int,
    brokers: str | None,
    state_dir: Path | None,
    as_json: bool,
) -> int:
    """Let faults strike, on simulated logs and in real processes on a real broker, and compare with an oracle.

    Ends with exit code 1 when anything was lost, twice, silently wrong or stuck. A case is run again by
    `--seed N --only point:fault`.
    """
    clock = SystemClock()
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    click.echo(f"seed {seed}", err=True)
    report = _run(
        seed,
        full=not quick,
        wanted=wanted,
        seeds=seeds or (QUICK_SEEDS if quick else FULL_SEEDS),
        matrix=lambda cases: _matrix(cases, brokers, state_dir, lanes, clock),
        clock=clock,
    )
    body = report.as_dict()
    if as_json:
        emit_json(body)
    else:
        emit_pairs([(name, str(value)) for name, value in body.items() if name != "simulation"])
    return 0 if report.is_clean else _FOUND_SOMETHING
