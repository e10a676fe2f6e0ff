"""`stateflow savepoint`: keep a consistent state of a whole application, and start one from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import click

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog
from stateflow.checkpoint.locations import AllowedLocations, written_down
from stateflow.checkpoint.savepoints import Savepoint, SavepointObjects
from stateflow.cli.application import configured, connected
from stateflow.cli.confirm import confirm
from stateflow.cli.options import (
    Duration,
    app_id_option,
    brokers_override,
    dry_run_option,
    json_option,
    optional_target_argument,
    stacked,
    state_dir_override,
    yes_option,
)
from stateflow.cli.output import emit_json
from stateflow.cli.savepoint_text import (
    Steps,
    plan_data,
    print_listed,
    print_plan,
    print_savepoint,
    restored_data,
    savepoint_data,
)
from stateflow.cli.target import Chosen, chosen
from stateflow.clock import SystemClock
from stateflow.errors import ConfigError, ImagesUnreachable, StateCorrupt
from stateflow.log.base import Cluster
from stateflow.record import is_topic_name
from stateflow.redaction import redacted_text, shown
from stateflow.runtime.worker.prepare import expected_catalog
from stateflow.savepoint import lookup as kept
from stateflow.savepoint.create import CreateSettings, check_creatable, task_ids
from stateflow.savepoint.create import create as create_savepoint
from stateflow.savepoint.matching import SourcePolicy
from stateflow.savepoint.restore import RestoreSettings, plan_restore
from stateflow.savepoint.restore import restore as restore_savepoint
from stateflow.savepoint.target_generation import abort_restore, unfinished_restore
from stateflow.scale.generation import await_stopped, load_catalog

_CLOCK = SystemClock()


@click.group()
def command() -> None:
    """Savepoints: named, consistent states of a whole application, to go back to or to start others from."""


def _options(*more: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What every subcommand takes, and ``more``."""
    return stacked(*more, app_id_option, brokers_override, json_option)


words_argument = click.argument("words", metavar="[APP] NAME", nargs=-1, required=True)
from_option = click.option(
    "--from",
    "location",
    metavar="LOCATION",
    help="Where the savepoint is kept, when this cluster does not list it, or the settings do not name that place.",
)


def _named(words: tuple[str, ...], app_id: str | None, brokers: str | None) -> tuple[Chosen, str, str | None]:
    """The application that a savepoint is of, the savepoint's name, and the code if it was named."""
    if len(words) != (1 if app_id else 2):
        raise ConfigError(
            "It is not clear which savepoint of which application is meant.",
            action="give APP NAME (module:attribute or file.py:attribute), or --app ID NAME.",
        )
    target = None if app_id else words[0]
    return chosen(target, app_id, brokers), words[-1], target


@contextmanager
def _place_errors(what: str) -> Iterator[None]:
    """What an object store complains of, as our error."""
    try:
        yield
    except OSError as error:
        raise ImagesUnreachable(
            f"the savepoints at {shown(what)} cannot be read or written ({redacted_text(str(error))}).",
            action="check that the place exists, that this machine reaches it, and that credentials are in the"
            " environment.",
            location=shown(what),
        ) from error


def _open(
    cluster: Cluster, application: Chosen, name: str, location: str | None
) -> tuple[SavepointObjects, Savepoint]:
    if location is not None:
        saved = kept.open_at(location, application.app, name, _CLOCK)
    else:
        listed = kept.find_listed(load_catalog(cluster, application.app), name)
        saved = kept.open_listed(listed, application.app, _CLOCK, _allowed(application))
    return saved, saved.load()


def _allowed(application: Chosen, location: str | None = None) -> AllowedLocations:
    """What the settings name, and what was named on the command line."""
    allowed = AllowedLocations(application.options.places)
    return allowed if location is None else allowed.and_also(location)


@command.command()
@_options(words_argument, state_dir_override, dry_run_option)
@click.option(
    "--to",
    "location",
    metavar="LOCATION",
    help="Where to keep it: a directory, s3://…, gs://… or hdfs://…; the setting `images` by default. Running workers"
    " must reach it under the same name, and their settings `savepoints` or `images` must allow it.",
)
@click.option(
    "--timeout",
    "timeout_seconds",
    type=Duration(),
    default="2m",
    show_default=True,
    help="How long the tasks of a running application may take.",
)
def create(
    words: tuple[str, ...],
    app_id: str | None,
    brokers: str | None,
    state_dir: Path | None,
    location: str | None,
    timeout_seconds: float,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make a savepoint NAME of APP (or --app ID), whether it runs or not.

    A running application goes on without a pause. If it fails, nothing of it is left.
    """
    application, name, _ = _named(words, app_id, brokers)
    where = location or application.options.images
    if where is None:
        raise ConfigError(
            "No savepoint location is configured.",
            action="give --to LOCATION, or the setting `images`: a directory, s3://bucket/prefix, gs://… or hdfs://….",
        )
    if "://" not in where:
        where = written_down(where)  # workers may have been started elsewhere
    with connected(application.options) as cluster, _place_errors(where):
        if dry_run:
            catalog = check_creatable(cluster, application.app, name)
            _show_would_create(cluster, catalog, name, where, as_json=as_json)
            return
        settings = CreateSettings(
            timeout_seconds=timeout_seconds,
            state_dir=state_dir or application.options.state_dir,
            allowed=_allowed(application),
        )
        steps = Steps("parts")
        savepoint = create_savepoint(
            cluster, application.app, name, where, _CLOCK, settings=settings, report=steps
        )
    if as_json:
        emit_json({**savepoint_data(savepoint), "location": shown(where)})
    else:
        click.echo(
            f"The savepoint {savepoint.name} of {savepoint.app} is at {shown(where)}: {len(savepoint.tasks)} tasks,"
            f" {savepoint.records_in_flight} records in flight."
        )
    if not _allowed(application).allows(written_down(where)):
        click.echo(
            f"The settings do not name that place: other commands need --from {shown(where)}, or it in the setting"
            " `savepoints`.",
            err=True,
        )


def _show_would_create(cluster: Cluster, catalog: Catalog, name: str, where: str, *, as_json: bool) -> None:
    facts = {
        "app": catalog.app.app,
        "savepoint": name,
        "location": shown(where),
        "tasks": sorted(task_ids(catalog)),
        "workers": len(cluster.group_members(catalog.app.app)),
        "dry_run": True,
    }
    if as_json:
        emit_json(facts)
    else:
        how = (
            f"by {facts['workers']} worker(s) as they run"
            if facts["workers"]
            else "here, from the changelogs"
        )
        click.echo(f"Would make a savepoint of {len(task_ids(catalog))} tasks at {shown(where)}, {how}.")


@command.command(name="list")
@_options(optional_target_argument)
def list_(target: str | None, app_id: str | None, brokers: str | None, as_json: bool) -> None:
    """List the savepoints of APP."""
    application = chosen(target, app_id, brokers)
    with connected(application.options) as cluster:
        catalog = ControlTopic(cluster, application.app).load()
    print_listed(catalog, as_json=as_json)


@command.command()
@_options(words_argument, from_option)
def show(
    words: tuple[str, ...], app_id: str | None, brokers: str | None, location: str | None, as_json: bool
) -> None:
    """Show what is in a savepoint: tasks, offsets, sizes, records in flight."""
    application, name, _ = _named(words, app_id, brokers)
    with connected(application.options) as cluster, _place_errors(location or name):
        saved, savepoint = _open(cluster, application, name, location)
    if as_json:
        emit_json({**savepoint_data(savepoint, every=True), "location": saved.location})
    else:
        print_savepoint(savepoint, saved.location)


@command.command()
@_options(words_argument, from_option)
def verify(
    words: tuple[str, ...], app_id: str | None, brokers: str | None, location: str | None, as_json: bool
) -> None:
    """Read all of a savepoint and compare hashes, without restoring it."""
    application, name, _ = _named(words, app_id, brokers)
    with connected(application.options) as cluster, _place_errors(location or name):
        saved, savepoint = _open(cluster, application, name, location)
        found = kept.problems_of(saved, savepoint)
    problems = [f"{what}: {problem}" for what, several in found.items() for problem in several]
    if problems:
        raise StateCorrupt(
            f"the savepoint {savepoint.name!r} is damaged: {'; '.join(problems[:5])}.",
            action="restore from another one, and delete this one with `stateflow savepoint delete`.",
            problems=problems,
        )
    if as_json:
        emit_json({**savepoint_data(savepoint), "verified": sorted(found)})
    else:
        click.echo(f"The savepoint {savepoint.name} is whole: {len(found)} parts read.")


@command.command()
@_options(words_argument, dry_run_option, yes_option)
@click.option(
    "--from",
    "location",
    metavar="LOCATION",
    help="Where the savepoint is listed, when the settings do not name that place.",
)
@click.option(
    "--grace",
    "grace_seconds",
    type=Duration(),
    default="1h",
    show_default=True,
    help="Files younger than this stay, as an upload under way may share them; `checkpoint gc` removes them later.",
)
def delete(
    words: tuple[str, ...],
    app_id: str | None,
    brokers: str | None,
    location: str | None,
    grace_seconds: float,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete a savepoint, and the files that nothing else names."""
    application, name, _ = _named(words, app_id, brokers)
    with connected(application.options) as cluster, _place_errors(name):
        entry = kept.find_listed(load_catalog(cluster, application.app), name)
        if not dry_run:
            confirm(f"Delete the savepoint {name} at {shown(entry.location)}?", yes=yes, as_json=as_json)
            allowed = _allowed(application, location)
            kept.delete(cluster, application.app, name, _CLOCK, allowed, grace_ms=int(grace_seconds * 1000))
    if as_json:
        emit_json(
            {
                "app": application.app,
                "savepoint": name,
                "location": shown(entry.location),
                "deleted": not dry_run,
            }
        )
    else:
        click.echo(
            f"{'Would delete' if dry_run else 'Deleted'} the savepoint {name} at {shown(entry.location)}."
        )


@command.command()
@_options(words_argument, from_option, dry_run_option)
@click.option(
    "--as", "new_id", metavar="ID", help="Restore as an application of this id, which has none yet."
)
@click.option(
    "--allow-dropped-state",
    is_flag=True,
    help="Go on without state, or records in flight, of steps that the code no longer has.",
)
@click.option(
    "--sources",
    type=click.Choice(["offsets", "earliest", "latest"]),
    help="Where to read a source that is another topic than the savepoint's: at the same offsets (a copy), from its"
    " start, or from its end.",
)
def restore(
    words: tuple[str, ...],
    app_id: str | None,
    brokers: str | None,
    location: str | None,
    new_id: str | None,
    allow_dropped_state: bool,
    sources: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Start APP (or --app ID, or another one --as ID) from the savepoint NAME.

    APP may have changed since. It must not run; what it did since the savepoint is given up, and its input is read
    again from there: outputs of that time are written a second time. Interrupted, it goes on when started again.
    """
    if new_id is not None and not is_topic_name(new_id):
        raise ConfigError(
            f"{new_id!r} is not an application's id: topics are called after it.",
            action="give letters, digits, dots, hyphens and underscores.",
        )
    application, name, target = _named(words, app_id, brokers)
    with connected(application.options) as cluster, _place_errors(location or name):
        saved, savepoint = _open(cluster, application, name, location)
        wanted = new_id or application.app
        if target is None:
            expected = kept.expected_without_code(cluster, savepoint, wanted)
        else:
            app = configured(target, brokers=brokers)
            topology = replace(app.topology(), app=wanted)
            expected = expected_catalog(
                cluster, topology, application.options.guarantee, savepoint.routing.partitions, _CLOCK
            )
        settings = RestoreSettings(
            allow_dropped_state=allow_dropped_state,
            sources=cast("SourcePolicy | None", sources),
            as_new=new_id is not None,
            replication=application.options.replication,
        )
        if dry_run:
            plan = plan_restore(cluster, savepoint, expected, settings)
            print_plan(plan, savepoint) if not as_json else emit_json(plan_data(plan, savepoint))
            return
        await_stopped(cluster, wanted)
        done = restore_savepoint(
            cluster, savepoint, saved, expected, _CLOCK, settings=settings, report=Steps("partitions")
        )
    if as_json:
        emit_json(restored_data(done, savepoint))
    else:
        click.echo(
            f"{done.app} goes on from the savepoint {savepoint.name} with its next start: generation"
            f" {done.generation}, {done.partitions} partitions, {done.keys_total} keys,"
            f" {done.records_in_flight_total} records in flight, in {done.seconds:.1f} s."
        )


@command.command()
@_options(optional_target_argument, dry_run_option, yes_option)
def abort(
    target: str | None, app_id: str | None, brokers: str | None, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Undo a restore of APP that was begun and not finished; what was active before was never touched."""
    application = chosen(target, app_id, brokers)
    with connected(application.options) as cluster:
        entry = unfinished_restore(load_catalog(cluster, application.app))
        if not dry_run:
            confirm(
                f"Drop generation {entry.generation} with its {len(entry.topic_ids)} topic(s)?",
                yes=yes,
                as_json=as_json,
            )
            abort_restore(cluster, application.app)
    if as_json:
        emit_json({"app": application.app, "generation": entry.generation, "aborted": not dry_run})
    else:
        click.echo(
            f"The restore into generation {entry.generation} {'would be' if dry_run else 'is'} aborted."
        )
