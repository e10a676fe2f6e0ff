"""The changelog and repartition topics that an application has, and their settings."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from stateflow.catalog.model import Catalog
from stateflow.catalog.names import changelog_topic, repartition_topic
from stateflow.errors import BrokerRefused, TopicSettingsUnfit
from stateflow.log.base import Cluster, TopicSpec
from stateflow.runtime.snapshots.trim_policy import TRIMMED_CONFIG

_LOG = logging.getLogger(__name__)

_REMOVING = ("cleanup.policy", "retention.ms", "retention.bytes")
"""Settings of a changelog that remove records together."""
_NO_LIMIT = str((1 << 63) - 1)

CHANGELOG_CONFIG = {
    "cleanup.policy": "compact",
    # Segments roll by record time: wall-clock times keep rolling steady whatever event time does.
    "message.timestamp.type": "LogAppendTime",
}
REPARTITION_CONFIG = {
    "cleanup.policy": "delete",
    # Records carry event time, which may be years ago: only DeleteRecords behind the committed offset removes them.
    "retention.ms": "-1",
    "message.timestamp.type": "CreateTime",
    # Nor is event time held against the broker's clock: Kafka 4 would refuse what is an hour ahead of it.
    "message.timestamp.after.max.ms": _NO_LIMIT,
    "message.timestamp.before.max.ms": _NO_LIMIT,
    # A segment per jump of event time would be a segment per record: roll by size alone.
    "segment.ms": str(10 * 365 * 24 * 3600 * 1000),
    "segment.bytes": str(64 << 20),
}


def own_topics(catalog: Catalog, replication: int) -> list[TopicSpec]:
    """The changelog and repartition topics of the active generation."""
    app, generation = catalog.app.app, catalog.active.generation
    changelog_config = (
        CHANGELOG_CONFIG if catalog.app.trim is None else {**CHANGELOG_CONFIG, **TRIMMED_CONFIG}
    )
    specs = []
    for stage in catalog.stages.values():
        own_generation = catalog.changelog_generation(stage.name)
        partitions = catalog.partitions(stage.name)
        for store in (store for store in catalog.stores.values() if store.stage == stage.name):
            topic = changelog_topic(app, store.name, own_generation)
            specs.append(TopicSpec(topic, partitions, replication, changelog_config))
        for step in stage.rekeys:
            topic = repartition_topic(app, step.name, generation)
            specs.append(TopicSpec(topic, partitions, replication, REPARTITION_CONFIG))
    return specs


def judged_topics(catalog: Catalog, specs: Iterable[TopicSpec]) -> list[TopicSpec]:
    """Those whose settings are not put right at every start anyway: changelogs that are trimmed are."""
    return [spec for spec in specs if catalog.app.trim is None or _is_repartition(spec)]


def unfit_settings(spec: TopicSpec, present: Mapping[str, str]) -> dict[str, str]:
    """Settings of an own topic under which records or their times would be lost, and what they must be instead.

    Other settings may differ: they cost time or space. A setting that the cluster does not tell is passed over.
    """
    wanted = {"retention.ms": "-1", "retention.bytes": "-1"}
    if _is_repartition(spec):
        wanted |= {"cleanup.policy": "delete", "message.timestamp.type": "CreateTime"}
    elif "delete" not in [policy.strip() for policy in present.get("cleanup.policy", "").split(",")]:
        return {}  # compacted only: neither age nor size removes anything
    wrong = {name: value for name, value in wanted.items() if present.get(name, value) != value}
    return wrong if _is_repartition(spec) or not wrong else {"cleanup.policy": "compact"}


def settings_problems(cluster: Cluster, specs: Iterable[TopicSpec]) -> dict[str, str]:
    """Own topics that are there with settings that lose something → what is wrong, and the command that cures it.

    A topic whose settings may not be read is passed over, with a warning.
    """
    by_name = {spec.name: spec for spec in specs}
    problems = {}
    for name in sorted(cluster.describe(by_name)):
        try:
            present = cluster.topic_config(name)
        except BrokerRefused as error:
            _LOG.warning("Whether the settings of %s lose nothing cannot be told: %s", name, error.message)
            continue
        wrong = unfit_settings(by_name[name], present)
        if wrong:
            shown = [*wrong] if _is_repartition(by_name[name]) else _REMOVING
            found = ", ".join(f"{setting}={present.get(setting)}" for setting in shown)
            set_them = "--add-config " + ",".join(f"{setting}={value}" for setting, value in wrong.items())
            problems[name] = (
                f"{name} has {found}: `kafka-configs.sh --bootstrap-server … --alter --topic {name} {set_them}`"
            )
    return problems


def refuse_unfit_settings(cluster: Cluster, specs: Iterable[TopicSpec]) -> None:
    """Raise ``TopicSettingsUnfit`` where settings of topics would lose records, state, or the time of records."""
    problems = settings_problems(cluster, specs)
    if problems:
        raise TopicSettingsUnfit(
            "topics of this application have settings that lose records, or their event time:"
            f" {', '.join(sorted(problems))}.",
            action="; ".join(problems.values())
            + "; what is gone by now does not come back: if the application has run with these settings, `stateflow"
            " reset APP`.",
            topics=sorted(problems),
        )


def _is_repartition(spec: TopicSpec) -> bool:
    return spec.config == REPARTITION_CONFIG
