"""`stateflow topics`: the topics that an application reads and writes, planned and created."""

from __future__ import annotations

from collections.abc import Iterable

import click

from stateflow.app import App
from stateflow.catalog.control import ControlTopic
from stateflow.cli.application import configured, connected
from stateflow.cli.options import brokers_override, dry_run_option, json_array_option, target_argument
from stateflow.cli.output import emit_json, emit_table
from stateflow.clock import SystemClock
from stateflow.log.base import Cluster, TopicInfo, TopicSpec
from stateflow.runtime.snapshots.trim_policy import changelogs_of, changes_of, hold_trim_policy

_CONFIG = {"retention.ms": "-1"}


@click.group()
def command() -> None:
    """Plan or create the topics of an application."""


@command.command()
@target_argument
@brokers_override
@json_array_option
def plan(target: str, brokers: str | None, as_json: bool) -> None:
    """Show the topics that APP declares, and which of them exist."""
    app = configured(target, brokers=brokers)
    with connected(app.options) as cluster:
        _show(_declared(app), cluster, app.id, as_json=as_json)


@command.command()
@target_argument
@brokers_override
@dry_run_option
@json_array_option
def apply(target: str, brokers: str | None, dry_run: bool, as_json: bool) -> None:
    """Create the topics that APP declares and that do not exist; existing ones stay as they are.

    They keep records for ever (retention.ms=-1): records carry event time, and by age alone Kafka would delete
    results of old events within minutes. Its own topics (changelogs, repartition, control) are created when it runs;
    changelogs that are deleted before images (setting `trim`) get back the settings that this needs.
    """
    app = configured(target, brokers=brokers)
    declared = _declared(app)
    with connected(app.options) as cluster:
        if not dry_run:
            there = cluster.describe(spec.name for spec in declared)
            cluster.create(spec for spec in declared if spec.name not in there)
            control = ControlTopic(cluster, app.id)
            catalog = control.read()
            if catalog is not None:
                hold_trim_policy(cluster, control, catalog, SystemClock())
        _show(declared, cluster, app.id, as_json=as_json)


def _declared(app: App) -> list[TopicSpec]:
    """Declared topics, and dead-letter topics that steps name without declaring."""
    options = app.options
    specs = {
        topic.name: TopicSpec(
            topic.name, topic.partitions or options.partitions, options.replication, _CONFIG
        )
        for topic in app.topics
    }
    for stage in app.topology().stages:
        for name in stage.topics:
            specs.setdefault(name, TopicSpec(name, options.partitions, options.replication, _CONFIG))
    return list(specs.values())


def _show(declared: Iterable[TopicSpec], cluster: Cluster, app: str, *, as_json: bool) -> None:
    declared = list(declared)
    there = cluster.describe(spec.name for spec in declared)
    facts = [_fact(spec, there.get(spec.name)) for spec in declared]
    wrong = _wrong_settings(cluster, app)
    if as_json:
        changed = [{"topic": topic, "settings": changes} for topic, changes in wrong.items()]
        emit_json([*facts, *changed])
        return
    rows = [[fact["topic"], fact["declared"], fact["partitions"] or "missing"] for fact in facts]
    emit_table(["topic", "partitions declared", "on the cluster"], rows)
    for topic, changes in wrong.items():
        settings = ", ".join(f"{name}={value}" for name, value in changes.items())
        click.echo(f"{topic} is deleted before images and needs: {settings}")


def _wrong_settings(cluster: Cluster, app: str) -> dict[str, dict[str, str]]:
    """Changelog → settings that it needs, being deleted before images, and does not have."""
    catalog = ControlTopic(cluster, app).read()
    if catalog is None or catalog.app.trim is None:
        return {}
    there = cluster.describe(changelogs_of(catalog))
    found = {topic: dict(changes_of(cluster, topic)) for topic in sorted(there)}
    return {topic: changes for topic, changes in found.items() if changes}


def _fact(spec: TopicSpec, found: TopicInfo | None) -> dict[str, object]:
    return {
        "topic": spec.name,
        "declared": spec.partitions,
        "exists": found is not None,
        "partitions": found.partitions if found else None,
    }
