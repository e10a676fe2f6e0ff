"""`stateflow bench`: this project's speed on this machine, and that of its peers at the same work."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import click

from stateflow.cli.options import Duration, OutputFile, json_option
from stateflow.cli.output import emit_json
from stateflow.errors import ConfigError
from stateflow.lab.bench.band import compared, read_bands, updated
from stateflow.lab.bench.idle import IdleLoad, measure_idle
from stateflow.lab.bench.latency import LatencyLoad
from stateflow.lab.bench.recording import described, machine_now, write_result
from stateflow.lab.bench.restart_study import RestartLoad
from stateflow.lab.bench.showing import show
from stateflow.lab.bench.side import KafkaStreams
from stateflow.lab.bench.throughput import (
    Beside,
    measure_lateness,
    measure_restarts,
    measure_throughput,
    peers_for,
)
from stateflow.lab.bench.workload import WORKS, WorkName, of
from stateflow.testing.broker import open_test_broker

_DIFFERENT = 1
_IDLE, _LATENCY, _LOW_RATE, _RESTART, _SPARK = "idle", "latency", "low-rate", "restart", "spark"
_SERVED = {_LATENCY: (KafkaStreams.name,), _LOW_RATE: (), _RESTART: (KafkaStreams.name,)}
"""Works of processes that run until they are told to end, and who has a program for them."""
_LOW_RATE_RECORDS, _LOW_RATE_TASKS = 1_000, 8
_SPARK_PARTITIONS_TO = 5
_SECONDS = Duration(is_above_zero=True)


@click.command()
@click.argument("work", type=click.Choice([*WORKS, *_SERVED, _IDLE, _SPARK]))
@click.option(
    "--vs",
    default="",
    metavar="PEER[,PEER]",
    help="Who else does it: kafka-streams, quix, faust; for spark spark-groupby.",
)
@click.option(
    "--before",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Another checkout of this project, as one more side: what a change has brought.",
)
@click.option("--records", type=click.IntRange(min=1000), default=1_000_000, show_default=True)
@click.option("--keys", type=click.IntRange(min=1), help="[default: 100000; restore: a fifth of the records]")
@click.option("--partitions", type=click.IntRange(min=1), help="[default: 4; low-rate: 8]")
@click.option("--value-bytes", type=click.IntRange(min=24), help="[default: 100; shuffle: 1024]")
@click.option(
    "--selectivity",
    type=click.FloatRange(min=0, min_open=True),
    default=0.2,
    show_default=True,
    help="shuffle: to how many consumers a record goes, on average; --keys is how many consumers there are.",
)
@click.option(
    "--matrix", is_flag=True, help="Also 1 KiB values, 10 times keys and records, 1 to 64 partitions."
)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--guarantee",
    type=click.Choice(["exactly-once", "at-least-once"]),
    default="exactly-once",
    show_default=True,
)
@click.option(
    "--commit-interval", type=_SECONDS, help="Seconds. [default: 1; latency: each side's own default]"
)
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True, help="Of Kafka Streams.")
@click.option(
    "--rate", type=click.IntRange(min=1), help="Records a second. [default: latency 2000, low-rate 1000]"
)
@click.option(
    "--seconds",
    type=_SECONDS,
    default=20.0,
    show_default=True,
    help="latency, low-rate: of each side in each round.",
)
@click.option("--rekeyed", is_flag=True, help="latency: with a re-key step.")
@click.option("--tasks", default="64,256", show_default=True, help="idle: of each worker to measure.")
@click.option(
    "--shared-writers",
    help="The setting of our side, a side for each of several; idle: of each worker. [default: 0; idle: 0,1]",
)
@click.option(
    "--idle-seconds", type=_SECONDS, default=20.0, show_default=True, help="idle: how long CPU is counted."
)
@click.option("--brokers", help="A broker to use; one of its own is started otherwise.")
@click.option(
    "--band",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="Say how our CPU per million stands to what this file says it was at the last release.",
)
@click.option("--update-band", type=OutputFile(makes_folder=True), help="Write our CPU per million there.")
@click.option(
    "--save",
    type=OutputFile(makes_folder=True),
    help="Keep the result as a JSON file; `benchmarks/page.py` shows those in benchmarks/results.",
)
@json_option
def command(
    work: str,
    vs: str,
    before: Path | None,
    rounds: int,
    brokers: str | None,
    shared_writers: str | None,
    as_json: bool,
    band: Path | None,
    update_band: Path | None,
    save: Path | None,
    **options: Any,
) -> int:
    """Measure WORK, interleaved with the peers that --vs names; the last line is one JSON object with --json.

    `shuffle` is ShuffleBench: records of random bytes without keys go to the consumers whose rules they match.

    The work `idle` is none: what tasks of one worker process take that have nothing to do, with a producer each and
    with shared ones.

    `latency` is how long it takes from the sending of a record to the reading of the committed result, at an even rate:
    the newest value per key, exactly-once. A ratio above 1 says that this project's median is the smaller one.
    `low-rate` is the same at 1,000 records a second into 8 tasks, each record counted, in a window, with two timers and
    a result: what counts is CPU per record.

    `restart` is how long a start takes until the first result, with the disk as it was left and with an empty one.

    `spark` is the Spark jobs (move, recover, snapshot) beside plain PySpark and Spark's own repartition of its state;
    it begins with the number of --partitions, 1 if that is not given. With `--vs spark-groupby` it is a keyed count by
    long-running workers on Spark beside Spark's own groupBy with RocksDB state, and the latency of such a worker.

    Every side is one process. A fifth of the records is processed before the clock starts; it stops when all are
    committed. A ratio above 1 says that this project is faster, or cheaper in CPU. Ends with exit code 1 when
    results differ.
    """
    names = [name.strip() for name in vs.split(",") if name.strip()]
    if options["matrix"] and work not in WORKS:
        raise ConfigError(f"`bench {work}` has no matrix.", action=f"Take one of {', '.join(WORKS)}.")
    known = read_bands(band) if band is not None else None
    former = read_bands(update_band) if update_band is not None and update_band.exists() else {"commands": {}}
    machine = machine_now()
    beside = Beside(names, before, _numbers(shared_writers or "0"), brokers, rounds)
    if work == _IDLE:
        body = _idle(shared_writers or "0,1", brokers, options)
    elif work in _SERVED:
        body = _served(work, beside, options)
    elif work == _SPARK:
        body = _spark_groupby(vs, brokers, rounds, options) if vs else _spark(brokers, rounds, options)
    else:
        body = _throughput(cast(WorkName, work), beside, options)
    body = described({"work": work, **body}, click.get_current_context(), machine)
    if known is not None:
        body["band"] = compared(body, known)
    if update_band is not None:
        write_result(updated(body, former), update_band)
    if save is not None:
        write_result(body, save)
    if as_json:
        emit_json(body)
    else:
        show(body)
    return 0 if body.get("same_result", True) else _DIFFERENT


def _throughput(work: WorkName, beside: Beside, options: dict[str, Any]) -> dict[str, Any]:
    peers_for(work, beside.peers)
    same = ("value_bytes", "guarantee", "threads", "selectivity")
    load = of(
        work,
        options["records"],
        options["keys"],
        commit_seconds=1.0 if options["commit_interval"] is None else options["commit_interval"],
        partitions=options["partitions"] or 4,
        **{name: options[name] for name in same},
    )
    return measure_throughput(load, beside, _tell, matrix=options["matrix"])


def _served(work: str, beside: Beside, options: dict[str, Any]) -> dict[str, Any]:
    if unknown := set(beside.peers) - set(_SERVED[work]):
        raise ConfigError(
            f"`bench {work}` has no program for {', '.join(unknown)}.", action="Leave it out of --vs."
        )
    value_bytes, partitions = options["value_bytes"] or 100, options["partitions"]
    if work == _RESTART:
        restarts = RestartLoad(options["keys"] or 1_000_000, value_bytes, partitions or 4, options["threads"])
        return measure_restarts(restarts, beside, _tell)
    is_low = work == _LOW_RATE
    load = LatencyLoad(
        rate=options["rate"] or (_LOW_RATE_RECORDS if is_low else 2_000),
        seconds=options["seconds"],
        keys=options["keys"] or 10_000,
        partitions=partitions or (_LOW_RATE_TASKS if is_low else 4),
        value_bytes=value_bytes,
        stages="mixed" if is_low else "newest",
        rekeyed=options["rekeyed"],
        commit_seconds=options["commit_interval"],
        threads=options["threads"],
    )
    return measure_lateness(load, beside, _tell)


def _idle(shared_writers: str, brokers: str | None, options: dict[str, Any]) -> dict[str, Any]:
    loads = [
        IdleLoad(tasks, writers, options["idle_seconds"])
        for tasks in _numbers(options["tasks"])
        for writers in _numbers(shared_writers)
    ]
    return _measured(
        brokers, lambda bootstrap, folder: {"workers": measure_idle(loads, bootstrap, folder, _tell)}
    )


def _numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError as error:
        raise ConfigError(
            f"{text!r} is no list of numbers.", action="Write numbers with commas between: 64,256."
        ) from error


def _spark(brokers: str | None, rounds: int, options: dict[str, Any]) -> dict[str, Any]:
    from stateflow.lab.spark_bench.measure import SparkLoad, measure_spark

    before, records = options["partitions"] or 1, options["records"]
    load = SparkLoad(
        records=records,
        keys=options["keys"] or records // 4,
        partitions_from=before,
        partitions_to=_SPARK_PARTITIONS_TO if before < _SPARK_PARTITIONS_TO else before + 1,
        value_bytes=options["value_bytes"] or 100,
        rounds=rounds,
    )
    return _measured(brokers, lambda bootstrap, folder: measure_spark(bootstrap, load, folder, _tell))


def _spark_groupby(vs: str, brokers: str | None, rounds: int, options: dict[str, Any]) -> dict[str, Any]:
    from stateflow.lab.spark_bench.groupby import PEER, CountLoad, measure_groupby

    if vs != PEER:
        raise ConfigError(f"`bench spark` has no program for {vs}.", action=f"Name {PEER}.")
    load = CountLoad(
        records=options["records"],
        keys=options["keys"] or max(1, options["records"] // 10),
        rounds=rounds,
        partitions=options["partitions"] or 4,
        value_bytes=options["value_bytes"] or 100,
    )
    return _measured(brokers, lambda bootstrap, folder: measure_groupby(bootstrap, load, folder, _tell))


def _measured(brokers: str | None, work: Callable[[str, Path], dict[str, Any]]) -> dict[str, Any]:
    """Measure on a broker, with a folder for what that leaves."""
    with (
        tempfile.TemporaryDirectory(prefix="stateflow-bench-") as folder,
        open_test_broker(brokers) as broker,
    ):
        return work(broker.bootstrap, Path(folder))


def _tell(text: str) -> None:
    click.echo(text, err=True)
    sys.stderr.flush()
