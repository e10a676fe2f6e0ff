"""`stateflow state`: read an application's state on this machine, beside its workers or without them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click

from stateflow.catalog.control import ControlTopic
from stateflow.cli.application import connected
from stateflow.cli.early import tell_bound
from stateflow.cli.options import app_id_option, brokers_override, json_option, state_dir_override
from stateflow.cli.output import emit_json, emit_table, human_bytes
from stateflow.cli.state_migrate import migrate
from stateflow.cli.target import chosen
from stateflow.config import AppOptions
from stateflow.errors import ConfigError
from stateflow.query.local import ROW_PARTS, LocalState, TaskRow, as_fields, list_stores
from stateflow.query.shown import as_json
from stateflow.state.decoding import UnreadableKey

_SHOWN_KEYS = 10
_OF_EARLY = ("source", "task", "offset_first", "offset_next", "seconds")

target_option = click.option(
    "--target", "-t", "target", metavar="APP", help="module:attribute or file.py:attribute."
)


@click.group()
def command() -> None:
    """Read state from the local stores.

    Works while workers run: what they flushed last is seen (every flush_interval_seconds, 30 s by default), not
    their newest commits.
    """


command.add_command(migrate)


@command.command("list")
@state_dir_override
@app_id_option
@json_option
def list_(state_dir: Path | None, app_id: str | None, as_json: bool) -> None:
    """List the stores in a state directory: task, size, position. Needs no broker."""
    root = state_dir or AppOptions().state_dir
    if not root.is_dir():
        raise ConfigError(
            f"{root} is not a directory.", action="name the workers' state directory with --state-dir."
        )
    rows = [
        {
            "app": found.app,
            "generation": found.generation,
            "task": found.task,
            "store": found.store,
            "keys": found.size.keys_estimated,
            "bytes": found.size.files_bytes,
            "offset_next": None if found.position is None else found.position.offset_next,
            "pid": found.held_by_pid,
        }
        for found in list_stores(root, app_id)
    ]
    if as_json:
        emit_json({"state_dir": root, "stores": rows})
        return
    header = ("app", "gen", "task", "store", "keys ≈", "size", "offset_next", "pid")
    emit_table(header, [_text_row({**row, "bytes": human_bytes(int(str(row["bytes"])))}) for row in rows])


@command.command()
@click.argument("store")
@click.argument("key")
@target_option
@app_id_option
@brokers_override
@state_dir_override
@json_option
def get(store: str, key: str, as_json: bool, **where: Any) -> None:
    """Show all that STORE holds for KEY: a value, windows, list elements or map entries.

    KEY is text for keys that are strings or bytes, and JSON for all others, as `state scan --json` shows it: 47,
    '["ada", 1]', '{"x": 1, "y": 2}'; a time, a UUID or an enum's value needs no quotes of its own
    (2026-01-02T12:00:00Z). For keys that are no strings, hex:ff00 and base64:/wA= are the bytes of the key as they
    are stored; for keys that are bytes, text:hex:1 is a text that begins so.

    While `stateflow restore --serve-early` fills the state
    directory it is asked, and reads what KEY needs next; how long that may take is told on stderr.
    """
    from stateflow.query.early_asking import ask_restore

    local, app = _local_state(**where)
    early = ask_restore(local.state_dir, app, store, key, tell_bound)
    rows = early["rows"] if early is not None else [as_fields(row) for row in local.get(store, key)]
    if as_json:
        told = {} if early is None else {"early": {name: early[name] for name in _OF_EARLY}}
        emit_json({"store": store, "key": key, "rows": rows, **told})
    elif rows:
        _show(rows)
    else:
        click.echo(f"{store} holds nothing for {key!r} {_as_of(local, store, early)}")


@command.command()
@click.argument("store")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Rows at most.")
@click.option(
    "--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only these partitions."
)
@click.option(
    "--index",
    metavar="NAME=VALUE",
    help="Only rows of which this index gives VALUE: text, or JSON of a number.",
)
@target_option
@app_id_option
@brokers_override
@state_dir_override
@json_option
def scan(
    store: str, limit: int, partitions: tuple[int, ...], index: str | None, as_json: bool, **where: Any
) -> None:
    """Show the rows of STORE in store order, task by task.

    Rows whose keys cannot be decoded are left out; their keys are told as hex:…, which `state get` takes.
    """
    state, _ = _local_state(**where)
    unreadable: dict[str, None] = {}
    found = state.scan(store, partitions) if index is None else state.find(store, *_index(index), partitions)
    rows = _readable(found, unreadable)
    shown = list(islice(rows, limit))
    more = next(rows, None) is not None
    if as_json:
        told = {"unreadable_keys": list(unreadable)} if unreadable else {}
        emit_json({"store": store, "rows": [as_fields(row) for row in shown], "more": more, **told})
        return
    _show([as_fields(row) for row in shown])
    if more:
        click.echo(f"… and more; --limit {limit} reached.", err=True)
    if unreadable:
        keys = ", ".join(islice(unreadable, _SHOWN_KEYS))
        etc = ", …" if len(unreadable) > _SHOWN_KEYS else ""
        click.echo(
            f"{len(unreadable)} keys cannot be decoded, their rows are left out: {keys}{etc}", err=True
        )


def _readable(rows: Iterable[TaskRow], unreadable: dict[str, None]) -> Iterator[TaskRow]:
    """The rows whose keys could be decoded; those of the others are noted, once each."""
    for found in rows:
        if isinstance(found.row.key, UnreadableKey):
            unreadable[as_json(found.row.key)] = None
        else:
            yield found


def _as_of(local: LocalState, store: str, early: dict[str, Any] | None) -> str:
    """Where nothing was found, and how new that is which was looked at."""
    if early is not None:
        return "in the changelog that is being restored."
    seen = local.seen(store)
    flushes = [each.flushed_at for each in seen]
    first = min((each for each in flushes if each is not None), default=None)
    flushed = (
        "before a first flush" if first is None or None in flushes else f"as of {first:%Y-%m-%d %H:%M:%S} UTC"
    )
    pids = sorted({each.held_by_pid for each in seen if each.held_by_pid is not None})
    if not pids:
        return f"on this disk, {flushed}."
    running = ", ".join(map(str, pids))
    return (
        f"on this disk, {flushed}. A running worker (pid {running}) writes its newest changes there every"
        " flush_interval_seconds (30 by default): ask again after that."
    )


def _index(text: str) -> tuple[str, str | float | bool]:
    """The name of an index, and the value asked for: a number or true, else text, which quotes force."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--index {text} names no value.", action="write --index NAME=VALUE.")
    try:
        found = json.loads(value)
    except json.JSONDecodeError:
        return name, value
    return (name, found) if isinstance(found, str | int | float | bool) else (name, value)


def _local_state(
    target: str | None, app_id: str | None, brokers: str | None, state_dir: Path | None
) -> tuple[LocalState, str]:
    """The state on this disk, and the application's id."""
    application = chosen(target, app_id, brokers)
    with connected(application.options) as cluster:
        catalog = ControlTopic(cluster, application.app).load()
    return LocalState(state_dir or application.options.state_dir, catalog), application.app


def _show(rows: list[dict[str, Any]]) -> None:
    """A table; columns of parts that the store does not have are left out."""
    columns = ["task", "key", *(part for part in ROW_PARTS if any(part in row for row in rows)), "value"]
    emit_table(columns, [_text_row({column: row.get(column) for column in columns}) for row in rows])


def _text_row(row: dict[str, Any]) -> list[object]:
    return ["" if cell is None else cell for cell in row.values()]
