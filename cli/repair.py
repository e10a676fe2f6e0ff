"""`stateflow repair`: show what is wrong with an application's control topic, and put it right."""

from __future__ import annotations

from typing import Any

import click

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.names import control_topic
from stateflow.catalog.records import Found
from stateflow.catalog.repair import Choices, Finding, findings, records
from stateflow.cli.application import connected
from stateflow.cli.confirm import confirm
from stateflow.cli.options import app_id_option, brokers_override, dry_run_option, json_option, yes_option
from stateflow.cli.output import emit_json, emit_table
from stateflow.cli.target import chosen
from stateflow.clock import SystemClock
from stateflow.errors import CatalogMissing, ConfigError


@click.command()
@click.argument("target", metavar="[APP]", required=False)
@app_id_option
@brokers_override
@click.option(
    "--restore-older",
    is_flag=True,
    help="Put entries that the application needs, and that cannot be read, back as they stood before.",
)
@click.option("--unknown", is_flag=True, help="Remove records that are not of the catalog, too.")
@click.option("--abort-savepoint", is_flag=True, help="Abort the savepoint that is being made.")
@click.option("--end-cut", "abort_savepoint", is_flag=True, hidden=True)
@click.option(
    "--discard",
    multiple=True,
    metavar="KEY",
    help="Remove an entry that cannot be read, though the application may need it: store/NAME, stage/NAME …",
)
@yes_option
@dry_run_option
@json_option
def command(
    target: str | None,
    app_id: str | None,
    brokers: str | None,
    restore_older: bool,
    unknown: bool,
    abort_savepoint: bool,
    discard: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Look through the control topic of APP (or --app ID), and take out what no stateflow wrote.

    Records that cannot be read and are not needed are replaced by what stood there before, or removed; entries that
    the application needs only as the options say. Workers may run meanwhile.
    """
    application = chosen(target, app_id, brokers)
    choices = Choices(
        restore_older=restore_older,
        unknown=unknown,
        abort_savepoint=abort_savepoint,
        discard=frozenset(discard),
    )
    now_ms = SystemClock().now_ms()

    def decide(found: Found) -> dict[bytes, bytes | None]:
        return records(findings(found, now_ms, choices))

    with connected(application.options) as cluster:
        control = ControlTopic(cluster, application.app)
        if control_topic(application.app) not in cluster.describe([control_topic(application.app)]):
            raise CatalogMissing(
                f"there is no control topic of an application {application.app!r} on this cluster.",
                action="check the application's id and the brokers.",
                app=application.app,
            )
        listed = findings(control.find(warn=False), now_ms, choices)
        _require_known(discard, listed, control.topic)
        wanted = records(listed)
        if not as_json:
            _print(application.app, listed, dry_run=dry_run)
        if wanted and not dry_run:
            confirm(f"Write {len(wanted)} record(s) to {control.topic}?", yes=yes, as_json=as_json)
            control.put(decide)
        done = bool(wanted) and not dry_run
    if as_json:
        emit_json(
            {
                "app": application.app,
                "topic": control.topic,
                "partition": 0,
                "findings": [_data(finding) for finding in listed],
                "records_written": len(wanted) if done else 0,
                "dry_run": dry_run,
            }
        )
    elif done:
        click.echo(f"{len(wanted)} record(s) were written to {control.topic}.")


def _require_known(discard: tuple[str, ...], listed: list[Finding], topic: str) -> None:
    """Refuse keys that are not to be repaired, before anything is written."""
    unreadable = sorted(finding.name for finding in listed if finding.kind in ("needed", "bad"))
    unknown = sorted(set(discard) - set(unreadable))
    if unknown:
        raise ConfigError(
            f"--discard: no entry {', '.join(unknown)} of {topic} is one that cannot be read.",
            action=f"name one of {', '.join(unreadable)}."
            if unreadable
            else "leave it out: all can be read.",
        )


def _data(finding: Finding) -> dict[str, Any]:
    return {
        "key": finding.name,
        "offset": finding.offset,
        "kind": finding.kind,
        "why": finding.why,
        "what_to_do": finding.what_to_do,
        "is_repaired": finding.record is not None,
    }


def _print(app: str, listed: list[Finding], *, dry_run: bool) -> None:
    if not listed:
        click.echo(f"Nothing is wrong with {control_topic(app)}.")
        return
    head = "would do" if dry_run else "to do"
    rows = [
        [
            finding.name,
            "-" if finding.offset is None else finding.offset,
            finding.kind,
            finding.why,
            finding.what_to_do,
        ]
        for finding in listed
    ]
    emit_table(["key", "offset", "kind", "why", head], rows)
