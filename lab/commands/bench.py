"""`stateflow bench`: this project's speed on this machine, and that of its peers at the same work."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import click

from stateflow.cli.options import json_option
from stateflow.cli.output import emit_json, emit_pairs, emit_table
from stateflow.connectors.broker.places import cache_dir
from stateflow.errors import ConfigError
from stateflow.lab.bench.idle import IdleLoad, measure_idle
from stateflow.lab.bench.latency import LatencyLoad
from stateflow.lab.bench.latency_study import LatencySide, measure_latency, our_command, streams_command
from stateflow.lab.bench.result import OURS
from stateflow.lab.bench.side import PYTHON_PEERS, WORKS_OF, KafkaStreams, Ours, Python, Side
from stateflow.lab.bench.study import measure
from stateflow.lab.bench.workload import WORKS, Workload, WorkName, of
from stateflow.testing.broker import open_test_broker

_DIFFERENT = 1
_IDLE = "idle"
_LATENCY = "latency"
_SPARK = "spark"
_SPARK_PARTITIONS_TO = 5
_PEERS = (KafkaStreams.name, *PYTHON_PEERS)


@click.command()
@click.argument("work", type=click.Choice([*WORKS, _IDLE, _LATENCY, _SPARK]))
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
@click.option("--partitions", type=click.IntRange(min=1), default=4, show_default=True)
@click.option("--value-bytes", type=click.IntRange(min=24), default=100, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--guarantee",
    type=click.Choice(["exactly-once", "at-least-once"]),
    default="exactly-once",
    show_default=True,
)
@click.option("--commit-interval", type=float, help="Seconds. [default: 1; latency: each side's own default]")
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True, help="Of Kafka Streams.")
@click.option(
    "--rate", type=click.IntRange(min=1), default=2_000, show_default=True, help="latency: records a second."
)
@click.option(
    "--seconds", type=float, default=20.0, show_default=True, help="latency: of each side in each round."
)
@click.option("--rekeyed", is_flag=True, help="latency: with a re-key step.")
@click.option("--tasks", default="64,256", show_default=True, help="idle: of each worker to measure.")
@click.option(
    "--shared-writers",
    help="The setting of our side, a side for each of several; idle: of each worker. [default: 0; idle: 0,1]",
)
@click.option(
    "--idle-seconds", type=float, default=20.0, show_default=True, help="idle: how long CPU is counted."
)
@click.option("--brokers", help="A broker to use; one of its own is started otherwise.")
@json_option
def command(
    work: str,
    vs: str,
    before: Path | None,
    rounds: int,
    brokers: str | None,
    records: int,
    keys: int | None,
    commit_interval: float | None,
    as_json: bool,
    rate: int,
    seconds: float,
    rekeyed: bool,
    tasks: str,
    shared_writers: str | None,
    idle_seconds: float,
    **options: Any,
) -> int:
    """Measure WORK, interleaved with the peers that --vs names; the last line is one JSON object with --json.

    The work `idle` is none: what tasks of one worker process take that have nothing to do, with a producer each and
    with shared ones.

    `latency` is how long it takes from the sending of a record to the reading of the committed result, at an even rate:
    the newest value per key, exactly-once. A ratio above 1 says that this project's median is the smaller one.

    `spark` is the Spark jobs (move, recover, snapshot) beside plain PySpark and Spark's own repartition of its state;
    it begins with the number of --partitions, 1 if that is not given. With `--vs spark-groupby` it is a keyed count by
    long-running workers on Spark beside Spark's own groupBy with RocksDB state, and the latency of such a worker.

    Every side is one process. A fifth of the records is processed before the clock starts; it stops when all are
    committed. A ratio above 1 says that this project is faster, or cheaper in CPU. Ends with exit code 1 when
    results differ.
    """
    if work == _IDLE:
        writers = _numbers(shared_writers or "0,1")
        counts = [IdleLoad(n, w, idle_seconds) for n in _numbers(tasks) for w in writers]
        _measure_idle(counts, brokers, as_json=as_json)
        return 0
    shared = _numbers(shared_writers or "0")
    if work == _LATENCY:
        sent = {name: options[name] for name in ("partitions", "value_bytes", "threads")}
        size = LatencyLoad(
            rate=rate,
            seconds=seconds,
            keys=keys or 10_000,
            rekeyed=rekeyed,
            commit_seconds=commit_interval,
            **sent,
        )
        _measure_latency(size, shared, vs, brokers, rounds, as_json=as_json)
        return 0
    if work == _SPARK:
        if vs:
            return _spark_groupby(vs, brokers, records, keys, rounds, options, as_json=as_json)
        return _spark(brokers, records, keys, rounds, options, as_json=as_json)
    name = cast(WorkName, work)
    peers = _peers(name, vs)
    commits = 1.0 if commit_interval is None else commit_interval
    load = of(name, records, keys, commit_seconds=commits, **options)
    with tempfile.TemporaryDirectory(prefix="stateflow-bench-") as folder:
        place = Path(folder)
        sides: list[Side] = [Ours(_name(n, shared), shared_writers=n) for n in shared]
        if before is not None:
            sides.append(Ours("before", before.resolve()))
        if KafkaStreams.name in peers:
            sides.append(KafkaStreams(place / "classes"))
        sides += [
            Python(name, peer, cache_dir() / "bench") for name, peer in PYTHON_PEERS.items() if name in peers
        ]
        with open_test_broker(brokers) as broker:
            result = measure(load, sides, broker.bootstrap, place, rounds, _tell)
    versions = {side.name: side.version for side in sides if isinstance(side, KafkaStreams | Python)}
    body = {"work": work, "workload": _size(load), "versions": versions, **result}
    if as_json:
        emit_json(body)
    else:
        _show(body)
    return 0 if result["same_result"] else _DIFFERENT


def _name(writers: int, all_writers: list[int]) -> str:
    """Of our side with so many shared writers: the first is the one that others are compared with."""
    return OURS if writers == all_writers[0] else f"shared-writers-{writers}"


def _numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError as error:
        raise ConfigError(
            f"{text!r} is no list of numbers.", action="Write numbers with commas between: 64,256."
        ) from error


def _measure_idle(loads: list[IdleLoad], brokers: str | None, *, as_json: bool) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="stateflow-bench-") as folder,
        open_test_broker(brokers) as broker,
    ):
        rows = measure_idle(loads, broker.bootstrap, Path(folder), _tell)
    if as_json:
        emit_json({"work": _IDLE, "workers": rows})
        return
    header = (
        "tasks",
        "shared writers",
        "ready s",
        "its CPU s",
        "threads",
        "descriptors",
        "RSS MiB",
        "idle CPU %",
    )
    columns = ("tasks", "shared_writers", "ready_seconds", "ready_cpu_seconds", "threads", "descriptors")
    emit_table(
        header,
        [(*(row[name] for name in columns), row["rss_bytes"] >> 20, row["cpu_percent"]) for row in rows],
    )


def _measure_latency(
    load: LatencyLoad, writers: list[int], vs: str, brokers: str | None, rounds: int, *, as_json: bool
) -> None:
    peers = [name.strip() for name in vs.split(",") if name.strip()]
    if set(peers) - {KafkaStreams.name}:
        raise ConfigError(f"`bench latency` has no program for {vs}.", action=f"Name {KafkaStreams.name}.")
    with tempfile.TemporaryDirectory(prefix="stateflow-bench-") as folder:
        place = Path(folder)
        sides = [LatencySide(_name(n, writers), our_command(n)) for n in writers]
        versions: dict[str, str] = {}
        if peers:
            peer = KafkaStreams(place / "classes")
            sides.append(LatencySide(peer.name, streams_command(peer.command)))
            versions[peer.name] = peer.version
        with open_test_broker(brokers) as broker:
            result = measure_latency(load, sides, broker.bootstrap, place, rounds, _tell)
    if as_json:
        emit_json({"work": _LATENCY, "workload": asdict(load), "versions": versions, **result})
        return
    columns = list(next(iter(result["sides"].values())))
    emit_table(
        ("side", *columns),
        [(side, *(figures[name] for name in columns)) for side, figures in result["sides"].items()],
    )


def _spark(
    brokers: str | None,
    records: int,
    keys: int | None,
    rounds: int,
    options: dict[str, Any],
    *,
    as_json: bool,
) -> int:
    from stateflow.lab.spark_bench.measure import SparkLoad, measure_spark

    named = click.get_current_context().get_parameter_source("partitions")
    given = named is not None and named.name != "DEFAULT"
    before = options["partitions"] if given else 1
    load = SparkLoad(
        records=records,
        keys=keys or records // 4,
        partitions_from=before,
        partitions_to=_SPARK_PARTITIONS_TO if before < _SPARK_PARTITIONS_TO else before + 1,
        value_bytes=options["value_bytes"],
        rounds=rounds,
    )
    return _measured(
        brokers, lambda bootstrap, folder: measure_spark(bootstrap, load, folder, _tell), as_json=as_json
    )


def _spark_groupby(
    vs: str,
    brokers: str | None,
    records: int,
    keys: int | None,
    rounds: int,
    options: dict[str, Any],
    *,
    as_json: bool,
) -> int:
    from stateflow.lab.spark_bench.groupby import PEER, CountLoad, measure_groupby

    if vs != PEER:
        raise ConfigError(f"`bench spark` has no program for {vs}.", action=f"Name {PEER}.")
    sizes = {name: options[name] for name in ("partitions", "value_bytes")}
    load = CountLoad(records=records, keys=keys or max(1, records // 10), rounds=rounds, **sizes)
    return _measured(
        brokers, lambda bootstrap, folder: measure_groupby(bootstrap, load, folder, _tell), as_json=as_json
    )


def _measured(brokers: str | None, work: Callable[[str, Path], dict[str, Any]], *, as_json: bool) -> int:
    """Measure on a broker, with a folder for what that leaves, and show what was found."""
    with (
        tempfile.TemporaryDirectory(prefix="stateflow-bench-") as folder,
        open_test_broker(brokers) as broker,
    ):
        body = work(broker.bootstrap, Path(folder))
    if as_json:
        emit_json(body)
    else:
        emit_pairs([(name, str(value)) for name, value in body.items()])
    return 0 if body["same_result"] else _DIFFERENT


def _peers(work: WorkName, vs: str) -> list[str]:
    named = [name.strip() for name in vs.split(",") if name.strip()]
    for name in named:
        if name not in _PEERS:
            raise ConfigError(f"There is no peer called {name!r}.", action=f"Name {' or '.join(_PEERS)}.")
        if work not in WORKS_OF[name]:
            raise ConfigError(
                f"`bench {work}` has no program for {name}.",
                action=f"Leave it out; it takes part in {', '.join(sorted(WORKS_OF[name]))}.",
            )
    return named


def _size(load: Workload) -> dict[str, Any]:
    return {name: value for name, value in asdict(load).items() if name != "work"}


def _show(body: dict[str, Any]) -> None:
    """The figures of all sides as a table."""
    header = (
        "side",
        "records/s",
        "from",
        "to",
        "CPU s per million",
        "ours is so much faster",
        "cheaper",
        "RSS MiB",
    )
    rows = []
    for side, figures in body["sides"].items():
        spread = figures["records_per_second_spread"]
        ratio = "" if side == OURS else body["ratios"][side]["median"]
        cpu_ratio = "" if side == OURS else body["cpu_ratios"][side]["median"]
        rows.append(
            (
                side,
                figures["records_per_second"],
                *spread,
                body["cpu_seconds_per_million"][side],
                ratio,
                cpu_ratio,
                figures["rss_bytes_max"] >> 20,
            )
        )
    emit_table(header, rows)
    click.echo(f"results are {'the same' if body['same_result'] else 'DIFFERENT'}; {body['runs']} round(s)")


def _tell(text: str) -> None:
    click.echo(text, err=True)
    sys.stderr.flush()
