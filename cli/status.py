"""`stateflow status`: the broker that `stateflow up` started, and whether it answers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from stateflow.cli.options import json_option
from stateflow.cli.output import emit_json, emit_pairs, human_bytes
from stateflow.connectors.broker.features import finalized_features
from stateflow.connectors.broker.running import RunningBroker, load_running


@click.command()
@json_option
def command(as_json: bool) -> None:
    """Show the broker that `up` started: where it answers, its processes and its data."""
    running = load_running()
    if running is None:
        if as_json:
            emit_json({"running": False})
        else:
            click.echo("no broker runs; start one with `stateflow up`")
        return
    facts = broker_facts(running)
    if as_json:
        emit_json(facts)
        return
    emit_pairs(
        [
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
        state = "dead; clear it with `stateflow down`"
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
