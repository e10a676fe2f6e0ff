"""`stateflow status`: the brokers that `stateflow up` started, and whether they answer."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from stateflow.cli.options import broker_name_option, json_option
from stateflow.cli.output import emit_json, emit_pairs, emit_table, human_bytes
from stateflow.connectors.broker.features import finalized_features
from stateflow.connectors.broker.running import (
    DEFAULT_NAME,
    RunningBroker,
    all_running,
    load_running,
    meant_name,
)


@click.command()
@broker_name_option
@json_option
def command(name: str | None, as_json: bool) -> None:
    """Show the broker that `up` started: where it answers, its processes and its data; and those of other names."""
    meant = meant_name(name)
    running = load_running(meant)
    others = [broker_facts(broker) for broker in all_running() if broker.name != meant]
    facts: dict[str, object] = {"running": False} if running is None else broker_facts(running)
    if as_json:
        emit_json({**facts, "others": others})
        return
    if running is None:
        click.echo("no broker runs; start one with `stateflow up`" + (f" --name {meant}" if name else ""))
    else:
        _show(running, facts)
    if others:
        click.echo()
        emit_table(
            ["name", "bootstrap", "state"], [[it["name"], it["bootstrap"], it["state"]] for it in others]
        )


def _show(running: RunningBroker, facts: dict[str, object]) -> None:
    emit_pairs(
        [
            ("name", running.name),
            ("state", facts["state"]),
            ("bootstrap", running.bootstrap),
            ("kafka", running.version),
            ("data", f"{running.data_dir} ({human_bytes(_folder_bytes(Path(running.data_dir)))})"),
            ("processes", " ".join(str(pid) for pid in running.live_pids) or "none"),
            ("features", facts["features"] or None),
        ]
    )


def broker_facts(running: RunningBroker) -> dict[str, object]:
    """The record, and what is true of it now: `state`, the feature levels in force, and the bytes on disk."""
    features = _features(running)
    if features:
        state = "running"
    elif running.live_pids:
        state = "running, but it does not answer"
    else:
        option = "" if running.name == DEFAULT_NAME else f" --name {running.name}"
        state = f"dead; clear it with `stateflow down{option}`"
    return {
        **asdict(running),
        "running": running.is_alive,
        "state": state,
        "features": features,
        "data_bytes": _folder_bytes(Path(running.data_dir)),
    }


def _features(running: RunningBroker) -> dict[str, int]:
    """The cluster's feature levels; empty when its first broker does not answer."""
    host, _, port = running.bootstrap.split(",")[0].rpartition(":")
    try:
        return finalized_features(host, int(port), timeout_seconds=2.0)
    except OSError:
        return {}


def _folder_bytes(folder: Path) -> int:
    """Bytes on disk under a folder (blocks, so that sparse index files count as what they take)."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_blocks * 512
        except FileNotFoundError:
            continue  # the broker removed a segment while we looked
    return total
