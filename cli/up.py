"""`stateflow up`: a Kafka broker on this machine."""

from __future__ import annotations

import logging
import signal
import threading
from dataclasses import asdict
from pathlib import Path

import click

from stateflow.addresses import PORT_MAX
from stateflow.cli.options import OutputFolder, broker_name_option, dry_run_option, json_option
from stateflow.cli.output import emit_json, emit_pairs, human_bytes
from stateflow.connectors.broker.distribution import KAFKA_JARS
from stateflow.connectors.broker.java import find_java
from stateflow.connectors.broker.running import (
    DEFAULT_NAME,
    NAME_VARIABLE,
    RunningBroker,
    all_running,
    meant_name,
)
from stateflow.connectors.broker.service import BrokerPlan, in_foreground, start_detached, watch
from stateflow.errors import ConfigError
from stateflow.output_places import require_folder


@click.command()
@click.option(
    "--brokers", type=click.Choice(["1", "3"]), default="1", show_default=True, help="Cluster size."
)
@click.option("--data", "data_dir", type=OutputFolder(), help="Keep the data here.")
@click.option("--ephemeral", is_flag=True, help="Throw the data away at the end.")
@click.option(
    "--port",
    type=click.IntRange(0, PORT_MAX),
    show_default="9092, or a free one with --name",
    help="Client port; 0 takes a free one.",
)
@broker_name_option
@click.option("--detach", is_flag=True, help="Go on in the background; end it with `stateflow down`.")
@dry_run_option
@json_option
def command(
    brokers: str,
    data_dir: Path | None,
    ephemeral: bool,
    port: int | None,
    name: str | None,
    detach: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Start Apache Kafka on this machine, keeping its data between runs.

    In the foreground, Ctrl-C ends it. With --name several run side by side, each with data of its own. The first
    start fetches Kafka's jars (about 37 MiB) and, on a machine without Java, uses the runtime that a wheel carries.
    """
    if ephemeral and data_dir is not None:
        raise ConfigError("--data and --ephemeral contradict each other.", action="Give one of them.")
    meant = meant_name(name)
    if port is None:
        port = BrokerPlan.port if meant == DEFAULT_NAME else 0
    plan = BrokerPlan(int(brokers), data_dir, ephemeral, port, meant)
    if plan.kept_dir is not None:
        require_folder(plan.kept_dir, "STATEFLOW_HOME" if data_dir is None else "--data")
    if dry_run:
        _show_plan(plan, as_json=as_json)
        return
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if detach:
        _show(start_detached(plan), as_json=as_json)
        return
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with in_foreground(plan) as (running, cluster):
        _show(running, as_json=as_json)
        watch(cluster, stop)
    if not as_json:
        click.echo("stopped")


def _show(running: RunningBroker, *, as_json: bool) -> None:
    if as_json:
        emit_json(asdict(running))
        return
    click.echo(f"Kafka {running.version} answers at {running.bootstrap}")
    kept = "thrown away at the end" if running.ephemeral else "kept"
    emit_pairs([("data", f"{running.data_dir} ({kept})"), ("processes", " ".join(map(str, running.pids)))])
    is_default = running.name == DEFAULT_NAME
    down = "stateflow down" if is_default else f"stateflow down --name {running.name}"
    click.echo("end it with Ctrl-C" if running.owner_pid else f"end it with `{down}`")
    if not is_default:
        click.echo(f"use it with {NAME_VARIABLE}={running.name}, or --brokers {running.bootstrap}")
    others = [
        f"{broker.name} at {broker.bootstrap}" for broker in all_running() if broker.name != running.name
    ]
    if others:
        click.echo(f"beside {', '.join(others)}")


def _show_plan(plan: BrokerPlan, *, as_json: bool) -> None:
    java = find_java()
    fetch_bytes = 0 if KAFKA_JARS.is_cached() else KAFKA_JARS.size_bytes
    facts: dict[str, object] = {
        "name": plan.name,
        "kafka": KAFKA_JARS.version,
        "brokers": plan.brokers,
        "port": plan.port,
        "data_dir": plan.kept_dir,
        "java": java.executable,
        "fetch_bytes": fetch_bytes,
    }
    if as_json:
        emit_json({"dry_run": True, **facts})
        return
    facts["data_dir"] = plan.kept_dir or "a temporary folder"
    facts["port"] = plan.port or "any free one"
    facts["fetch_bytes"] = human_bytes(fetch_bytes) if fetch_bytes else "nothing"
    click.echo("would start:")
    emit_pairs([(name.removesuffix("_bytes").replace("_dir", ""), value) for name, value in facts.items()])
