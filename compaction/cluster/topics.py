"""Which topics to tune: the changelogs of an application by its catalog, or any compacted topic by name."""

from __future__ import annotations

from stateflow.catalog.names import control_topic
from stateflow.errors import CatalogMissing
from stateflow.log.base import Cluster


def changelogs_of(cluster: Cluster, app: str) -> list[str]:
    """The changelog topics of an application that exist, of all generations."""
    topics = cluster.list_topics()
    if control_topic(app) not in topics:
        raise CatalogMissing(
            f"There is no application {app!r} on this cluster.",
            action="Check the id (`stateflow topics`), or name the topics with --topic.",
            app=app,
        )
    return [name for name in topics if _is_changelog(name, app)]


def is_ours(cluster: Cluster, topic: str) -> bool:
    """True for a changelog of an application that has a catalog here: only such a topic may be touched."""
    topics = set(cluster.list_topics())
    return any(
        control_topic(topic[:at]) in topics and _is_changelog(topic, topic[:at])
        for at in range(1, len(topic))
        if topic[at] == "-"
    )


def _is_changelog(topic: str, app: str) -> bool:
    base, _, generation = topic.rpartition("-g")
    name = base if base and generation.isdigit() else topic
    return name.startswith(f"{app}-") and name.endswith("-changelog")
