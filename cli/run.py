"""`stateflow run`: an application's workers, on this machine or as a Spark job."""

from __future__ import annotations

import functools
import logging
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stateflow.addresses import PORT_MAX
from stateflow.app import App
from stateflow.cli.application import configured, connected
from stateflow.cli.options import (
    Duration,
    OutputFile,
    brokers_override,
    dry_run_option,
    json_option,
    spark_setting,
    state_dir_override,
    target_argument,
)
from stateflow.cli.output import emit_json, emit_pairs
from stateflow.cli.run_text import WorkerLines
from stateflow.clock import SystemClock
from stateflow.errors import ConfigError
from stateflow.log.base import Cluster
from stateflow.runtime.process.launch import run_worker
from stateflow.runtime.process.signals import check_not_interrupted, stopped_by_signals
from stateflow.runtime.process.supervisor import PARENT_PIPE_OPTION, QUIET_PIPE_OPTION, Supervisor
from stateflow.runtime.progress.draining import Drain, watching_drain
from stateflow.runtime.settings import worker_settings
from stateflow.runtime.standby.placement_mode import refuse_mixed
from stateflow.runtime.task.wiring import Wiring
from stateflow.runtime.worker.descriptors import check_descriptors
from stateflow.runtime.worker.member_records import create_membership_topic
from stateflow.runtime.worker.observing import Observers, WorkerObserver
from stateflow.runtime.worker.prepare import missing_topics, prepare
from stateflow.scale.generation import STOPPED_WITHIN_SECONDS, await_stopped, refuse_beside_query
from stateflow.store.directory import disk_id

if TYPE_CHECKING:
    from stateflow.spark.long_running import LongRunSettings
    from stateflow.spark.runner import PipelineSettings


MEMBERS_OPTION = "--members"
"""What the names of a supervisor's workers in the group begin with, behind the application's."""
_DISK_CHARACTERS = 8


@dataclass(frozen=True, slots=True)
class WorkerName:
    """What a worker is called."""

    app: str
    own: str | None
    members: str | None = None

    @property
    def member(self) -> str | None:
        """In the group; None for a member without a name."""
        return "-".join(part for part in (self.app, self.members, self.own) if part) if self.own else None


@dataclass(frozen=True, slots=True)
class End:
    """Whether a run ends by itself, and whether its input then ends for good."""

    is_awaited: bool
    is_of_input: bool


@click.command()
@target_argument
@click.option("--runner", type=click.Choice(["local", "spark"]), default="local", show_default=True)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    help="Worker processes (1 by default); with Spark long-running tasks (by default one for each slot).",
)
@click.option(
    "--until-drained", "--until-idle", is_flag=True, help="Stop when all input there is was processed."
)
@click.option(
    "--end-of-input",
    is_flag=True,
    help="With --until-drained: no more input comes. Every timer in event time fires and every window closes.",
)
@click.option(
    "--standby",
    type=click.IntRange(0, 16),
    metavar="N",
    help="Copies of each task's state that other workers, with state directories of their own, keep up to date.",
)
@brokers_override
@state_dir_override
@click.option(
    "--restore-within",
    type=Duration(),
    help="Keep every changelog restorable within this time: one worker tunes how Kafka compacts them.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, PORT_MAX),
    help="Serve metrics for Prometheus at this port of 127.0.0.1; further workers take the ports after it.",
)
@click.option(
    "--name",
    "member",
    help="Name of this worker for static membership; with --workers, what the names of all of them begin with.",
)
@click.option(
    "--checkpoint-dir",
    help="Spark only, in micro-batches: where the query keeps its progress.",
)
@click.option(
    "--micro-batch",
    is_flag=True,
    help="Spark only: tasks that end with each micro-batch, as with --until-drained, instead of long-running workers.",
)
@click.option(
    "--progress-file",
    type=OutputFile(),
    help="Spark only: append the progress as lines of JSON, as the driver sees it.",
)
@click.option(
    "--master",
    metavar="URL",
    help="Spark only: the cluster, spark://host:port, yarn or k8s://…; by default this machine, 2 slots.",
)
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A Spark setting; may be repeated.")
@click.option(MEMBERS_OPTION, "members", hidden=True)
@click.option(PARENT_PIPE_OPTION, "with_parent", is_flag=True, hidden=True)
@click.option(QUIET_PIPE_OPTION, "quiet_to", type=int, hidden=True)
@click.option("-v", "--verbose", is_flag=True, help="Log every task's start and release.")
@dry_run_option
@json_option
def command(
    target: str,
    runner: str,
    workers: int | None,
    until_drained: bool,
    end_of_input: bool,
    standby: int | None,
    brokers: str | None,
    state_dir: Path | None,
    restore_within: float | None,
    metrics_port: int | None,
    member: str | None,
    checkpoint_dir: str | None,
    micro_batch: bool,
    progress_file: Path | None,
    master: str | None,
    conf: tuple[str, ...],
    members: str | None,
    with_parent: bool,
    quiet_to: int | None,
    verbose: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run APP (module:attribute or file.py:attribute) until Ctrl-C.

    A worker that is killed is started again and restores its state; Ctrl-C commits and closes (exit code 0; with
    --until-drained 130, as input is left).
    """
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(message)s"
    )
    app = configured(
        target,
        brokers=brokers,
        state_dir=state_dir,
        restore_within_seconds=restore_within,
        standby_replicas=standby,
        metrics_port=metrics_port,
    )
    if member is not None and runner == "spark":
        raise ConfigError(
            "Workers that Spark hosts are named by the driver that starts them.",
            action="leave out --name, or run local workers.",
        )
    micro_batch = micro_batch or until_drained or checkpoint_dir is not None
    if runner == "spark" and micro_batch and workers is not None:
        raise ConfigError(
            "In micro-batches Spark places a task wherever a slot is free.",
            action="leave out --workers; or run without --until-drained, --micro-batch and --checkpoint-dir.",
        )
    if end_of_input and not (until_drained or with_parent):
        raise ConfigError(
            "--end-of-input says that no more input comes, and the worker is not to stop.",
            action="give --until-drained, too.",
        )
    if progress_file is not None and runner != "spark":
        raise ConfigError(
            "--progress-file is written by the driver of a Spark job.",
            action="give --runner spark, too; `stateflow workers` shows what local workers do.",
        )
    of_spark = dict(map(spark_setting, conf))
    if checkpoint_dir is not None:
        from stateflow.spark.job_places import require_spark_folder

        require_spark_folder(checkpoint_dir, "--checkpoint-dir", conf=of_spark)
    end = End(until_drained, end_of_input)
    if dry_run:
        _show_plan(app, as_json=as_json)
    elif runner == "spark":
        from stateflow.spark.long_running import LongRunSettings
        from stateflow.spark.runner import PipelineSettings
        from stateflow.spark.session import SparkSettings

        name = f"stateflow-{app.id}"
        spark = SparkSettings(app_name=name, ui=True, master=master, conf=of_spark)
        if micro_batch:
            _run_in_micro_batches(
                app,
                target,
                end,
                PipelineSettings(checkpoint_dir=checkpoint_dir, progress_file=progress_file, spark=spark),
            )
        else:
            _run_long(app, target, LongRunSettings(workers=workers, progress_file=progress_file, spark=spark))
    elif workers is not None and workers > 1:
        _run_several(app, target, workers, member, end, verbose=verbose)
    else:
        _run_one(app, WorkerName(app.id, member, members), end, with_parent=with_parent, quiet_to=quiet_to)


def _prepared(app: App, cluster: Cluster) -> Wiring:
    options = app.options
    await_stopped(cluster, app.id, refuse=refuse_beside_query)
    placed = options.standby_replicas > 0
    await_stopped(cluster, app.id, refuse=functools.partial(refuse_mixed, placed=placed))
    wiring = prepare(
        cluster,
        app.topology(),
        options.guarantee,
        options.partitions,
        SystemClock(),
        options.replication,
        trim_to=options.trim_to,
        older_leave_seconds=STOPPED_WITHIN_SECONDS,
    )
    if placed:
        create_membership_topic(cluster, app.id, options.replication)
    return wiring


def _run_one(app: App, name: WorkerName, end: End, *, with_parent: bool, quiet_to: int | None) -> None:
    check_descriptors()
    lines = WorkerLines(name.own or app.id)
    with connected(app.options) as cluster, ExitStack() as stack:
        wiring = _prepared(app, cluster)
        observers: list[WorkerObserver] = [lines]
        served = None
        if app.options.metrics_port:
            from stateflow.runtime.worker.metrics_endpoint import serving_metrics  # and an HTTP server

            served = stack.enter_context(serving_metrics(app.id, app.options, cluster))
            observers.append(served.restores)
        if app.options.restore_within_seconds is not None:
            from stateflow.cli.compaction_beside import watch_beside  # the tuner takes long to import

            observers.append(stack.enter_context(watch_beside(app.options, wiring)))
        run_worker(
            cluster,
            wiring,
            worker_settings(app.options, name.member),
            observer=Observers(observers),
            until_drained=end.is_awaited,
            end_of_input=end.is_of_input,
            with_parent=with_parent,
            quiet_to=quiet_to,
            is_reachable=cluster.is_reachable,
            figures=None if served is None else served.requests,
            prepared_anew=functools.partial(_prepared, app, cluster),
        )


def _run_several(app: App, target: str, workers: int, member: str | None, end: End, *, verbose: bool) -> None:
    check_descriptors()
    options = app.options
    if options.metrics_port and options.metrics_port + workers - 1 > PORT_MAX:
        raise ConfigError(
            f"{workers} workers take the ports from {options.metrics_port} on, and the last is {PORT_MAX}.",
            action="lower metrics_port.",
            setting="metrics_port",
        )

    # Those of another machine have other names, or the two would put each other out of the group; those of the next
    # start have the same, so that they are given what is on this disk.
    members = member or options.member or disk_id(options.state_dir, app.id)[:_DISK_CHARACTERS]

    def command_line(name: str) -> list[str]:
        arguments = [
            sys.executable,
            "-m",
            "stateflow.cli",
            "run",
            target,
            "--name",
            name,
            MEMBERS_OPTION,
            members,
        ]
        arguments += ["--brokers", options.brokers, "--state-dir", str(options.state_dir)]
        if options.restore_within_seconds is not None:
            arguments += ["--restore-within", f"{options.restore_within_seconds}s"]
        arguments += ["--standby", str(options.standby_replicas)]
        port = options.metrics_port and options.metrics_port + int(name.removeprefix("w"))
        arguments += ["--metrics-port", str(port)]
        if end.is_of_input:
            arguments += ["--end-of-input"]
        return [*arguments, "--verbose"] if verbose else arguments

    with connected(options) as cluster:
        wiring = _prepared(app, cluster)
        supervisor = Supervisor(command_line, workers, SystemClock(), hears_quiet=end.is_awaited)
        with stopped_by_signals(supervisor.stop) as signalled:
            if not end.is_awaited:
                supervisor.run()
                return
            drain = Drain(cluster, wiring, supervisor.quiet, are_all=True)
            with watching_drain(drain, supervisor.stop):
                supervisor.run()
        check_not_interrupted(signalled)


def _run_long(app: App, target: str, settings: LongRunSettings) -> None:
    from stateflow.spark.connection import Connection
    from stateflow.spark.long_running import run_long
    from stateflow.spark.shipping import pipeline_of

    options = app.options
    connection = Connection(options.brokers, options.client)
    run = run_long(pipeline_of(target, app), connection, worker_settings(options), settings=settings)
    click.echo(f"{run.slots_total:,} offsets of input, {run.workers} workers.", err=True)


def _run_in_micro_batches(app: App, target: str, end: End, settings: PipelineSettings) -> None:
    from stateflow.spark.connection import Connection
    from stateflow.spark.runner import run_spark
    from stateflow.spark.shipping import pipeline_of

    options = app.options
    totals = run_spark(
        pipeline_of(target, app),
        Connection(options.brokers, options.client),
        worker_settings(options),
        until_idle=end.is_awaited,
        end_of_input=end.is_of_input,
        settings=settings,
    )
    click.echo(f"{totals.records_total:,} records in {totals.epochs_total} micro-batches.", err=True)


def _show_plan(app: App, *, as_json: bool) -> None:
    options = app.options
    with connected(options) as cluster:
        plan = missing_topics(cluster, app.topology(), options.partitions)
    facts = {
        "app": app.id,
        "brokers": options.brokers,
        "guarantee": options.guarantee,
        "state_dir": str(options.state_dir),
        "stages": [stage.name for stage in app.topology().stages],
        "would_create": plan,
    }
    if as_json:
        emit_json(facts)
    else:
        emit_pairs([(name, ", ".join(v) if isinstance(v, list) else v) for name, v in facts.items()])
