"""Running a study in several processes, each with a Java process of its own beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stateflow.errors import SetupError
from stateflow.lab.pool import process_pool
from stateflow.lab.time.joins import JOIN_ORACLE, run_joins
from stateflow.lab.time.report import TimeReport
from stateflow.lab.time.streams import WINDOW_ORACLE, KafkaStreams, prepare
from stateflow.lab.time.study import run_cases

_CHUNK = 25
_streams: KafkaStreams | None = None
"""Of a process of the pool: started once, it serves all its chunks and ends with it."""


@dataclass(frozen=True, slots=True)
class Study:
    """What is run of each number, and the Java program that is asked beside it."""

    program: Path
    run: Callable[[int, Sequence[int], KafkaStreams | None], TimeReport]


WINDOWS = Study(WINDOW_ORACLE, run_cases)
JOINS = Study(JOIN_ORACLE, run_joins)


def run_study(
    seed: int,
    numbers: Sequence[int],
    study: Study = WINDOWS,
    *,
    processes: int = 2,
    on_progress: Callable[[TimeReport], None] | None = None,
) -> TimeReport:
    """Run the cases of these numbers. Where Java or its jars cannot be had, the report says so."""
    started = time.monotonic()
    report = TimeReport()
    command: list[str] | None = None
    try:
        command = prepare(study.program)
    except SetupError as error:
        report.left_out.append(f"Kafka Streams' TopologyTestDriver was not asked: {error}")
    for part in _parts(partial(study.run, seed), numbers, command, processes):
        report.merge(part)
        report.seconds = time.monotonic() - started
        if on_progress is not None:
            on_progress(report)
    return report


_Run = Callable[[Sequence[int], KafkaStreams | None], TimeReport]


def _parts(
    run: _Run, numbers: Sequence[int], command: list[str] | None, processes: int
) -> Iterator[TimeReport]:
    chunks = [numbers[first : first + _CHUNK] for first in range(0, len(numbers), _CHUNK)]
    if processes == 1 or len(chunks) == 1:
        streams = KafkaStreams(command) if command else None
        try:
            for chunk in chunks:
                yield run(chunk, streams)
        finally:
            if streams is not None:
                streams.close()
        return
    with process_pool(processes, partial(_begin, command)) as pool:
        yield from pool.map(partial(_in_pool, run), chunks)


def _begin(command: list[str] | None) -> None:
    global _streams
    _streams = KafkaStreams(command) if command else None


def _in_pool(run: _Run, numbers: Sequence[int]) -> TimeReport:
    return run(numbers, _streams)
