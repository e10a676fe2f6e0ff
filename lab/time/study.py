"""The study: each log through an application, several ways, and all of it compared.

The oracle is compared with Kafka Streams, and every way of putting the log through the application with the oracle,
so that all three agree where nothing differs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from stateflow.lab.quiet import quiet
from stateflow.lab.time.logs import Row, random_log
from stateflow.lab.time.oracle import Computation, Place, Sequences, taken
from stateflow.lab.time.plays import Play, Player, random_play
from stateflow.lab.time.programs import Expected, Program, random_program
from stateflow.lab.time.report import TimeReport
from stateflow.lab.time.streams import KafkaStreams

PLAYS_PER_LOG = 2
QUICK_LOGS, FULL_LOGS = 1_400, 7_000
_SHOWN_RESULTS = 3
_COMPARABLE = (5, 7)
"""Five of seven logs are such that Kafka Streams can be asked; the others are of what it does not have."""


class Case(NamedTuple):
    """One log of a study, with all that is done with it: drawn from seed and number alone."""

    number: int
    program: Program
    rows: tuple[Row, ...]
    plays: tuple[Play, ...]


def case_of(seed: int, number: int) -> Case:
    """The case of a number."""
    rng = random.Random(f"time-{seed}-{number}")  # noqa: S311 - nothing secret: it must be repeatable
    part, whole = _COMPARABLE
    program = random_program(rng, comparable=number % whole < part)
    rows = random_log(rng, program.shape)
    plays = [random_play(rng, len(rows), is_scalable=program.is_scalable) for _ in range(PLAYS_PER_LOG)]
    return Case(number, program, rows, tuple(plays))


def run_cases(
    seed: int, numbers: Sequence[int], streams: KafkaStreams | None, *, plays_max: int = PLAYS_PER_LOG
) -> TimeReport:
    """Let these cases happen; without ``streams`` they are compared with the oracle alone."""
    report = TimeReport()
    with quiet():
        for number in numbers:
            case = case_of(seed, number)
            run_case(case._replace(plays=case.plays[:plays_max]), streams, report)
    return report


def run_case(case: Case, streams: KafkaStreams | None, report: TimeReport) -> None:
    """One log: asked of the oracle and of Kafka Streams, put through the application, compared."""
    expected = case.program.expected(case.rows)
    report.logs += 1
    report.late += sum(part.late for part in expected)
    known = len(report.failed)
    if streams is not None and any(part.asked for part in expected):
        report.compared_with_streams += 1
        for part in expected:
            if part.asked is not None:
                _ask(case, part, part.asked, streams, report)
    for play in case.plays:
        _play(case, play, expected, report)
    report.different += len(report.failed) > known


def _ask(
    case: Case, expected: Expected, asked: Computation, streams: KafkaStreams, report: TimeReport
) -> None:
    found = streams.results(asked, taken(case.rows, asked))
    if asked.kind == "sliding":
        # Where a window begins just after one record and ends with another, it is told as that of both.
        found, expected = (
            _without_repeats(found),
            expected._replace(sequences=_without_repeats(expected.sequences)),
        )
    # Kafka Streams passes on every update, as the oracle does; so the sequences must be the same in full.
    _note(case, "Kafka Streams", expected._replace(rule="each"), found, report)


def _without_repeats(sequences: Sequences) -> Sequences:
    return {
        place: [result for at, result in enumerate(results) if at == 0 or result != results[at - 1]]
        for place, results in sequences.items()
    }


def _play(case: Case, play: Play, expected: Sequence[Expected], report: TimeReport) -> None:
    report.batchings[play.batching] += 1
    report.guarantees[play.guarantee] += 1
    player = Player(case.program, play)
    try:
        found = player.run(case.rows)
    except Exception as error:  # noqa: BLE001 - whatever stops an application is a difference, too
        report.failed.append(f"log {case.number}, {play}: {type(error).__name__}: {error}")
        for part in expected:
            report.cases[part.operator] += 1
            report.wrong[part.operator] += 1
        return
    finally:
        report.acts.update(player.acts)
    for part, sequences in zip(expected, found, strict=True):
        _note(case, str(play), part, sequences, report)


def _note(case: Case, who: str, expected: Expected, found: Sequences, report: TimeReport) -> None:
    report.cases[expected.operator] += 1
    found = {place: results for place, results in found.items() if expected.is_judged(place)}
    places = different_places(expected, found)
    if places:
        report.wrong[expected.operator] += 1
        place = places[0]
        wanted, given = expected.sequences.get(place, []), found.get(place, [])
        at = next(
            (i for i, (one, other) in enumerate(zip(given, wanted, strict=False)) if one != other), None
        )
        at = min(len(given), len(wanted)) if at is None else at
        report.failed.append(
            f"log {case.number}, {expected.operator} ({expected.rule}), {who}: {len(places)} of"
            f" {len(expected.sequences)} places; {tuple(place)} from result {at}:"
            f" {given[at:][:_SHOWN_RESULTS]} instead of {wanted[at:][:_SHOWN_RESULTS]}"
        )


def different_places(expected: Expected, found: Sequences) -> list[Place]:
    """Where an output is not what it must be, in order."""
    places = sorted(expected.sequences.keys() | found.keys())
    return [place for place in places if not _fits(expected, place, found.get(place, []))]


def _fits(expected: Expected, place: Place, found: list[Any]) -> bool:
    wanted = expected.sequences.get(place, [])
    if expected.rule == "each":
        return found == wanted
    if expected.rule == "bag":
        return sorted(found) == sorted(wanted)
    if _newest(found) != _newest(wanted):
        return False
    rest = iter(wanted)
    return expected.rule == "newest" or all(result in rest for result in found)  # a subsequence


def _newest(results: Sequence[Any]) -> Any:
    """The last result; None for none, as for a session that has become part of another: that one may be told or not."""
    return results[-1] if results else None
