"""Which topics to tune: the changelogs that an application's catalog names, or any compacted topic by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog
from stateflow.catalog.names import changelog_topic, control_topic
from stateflow.errors import CatalogMissing, StateflowError
from stateflow.log.base import Cluster

_SHOWN_MAX = 5


def changelogs_of(cluster: Cluster, app: str) -> list[str]:
    """The changelogs of an application's active generation that exist, by name; retired ones cost no restore.

    What a name begins with does not tell whose it is: ``shop-eu-totals-changelog`` is not of ``shop`` when there is an
    application ``shop-eu``. Raises ``CatalogMissing`` for an application that has no catalog here, with the topics
    that may be meant: those of Kafka Streams have such names.
    """
    topics = cluster.list_topics()
    catalog = ControlTopic(cluster, app).read() if control_topic(app) in topics else None
    if catalog is None:
        raise _without_catalog(app, _alike(topics, app))
    return sorted(_changelogs(catalog).intersection(topics))


@dataclass(frozen=True, slots=True)
class TopicRole:
    """What a topic is to the applications of this library on its cluster."""

    kind: Literal["changelog", "filling", "retired", "foreign"] = "foreign"
    """A changelog in use; one that a repartition is filling; one of a generation that nothing reads any more; none."""
    app: str = ""
    copied_until_ms: int = 0
    """Until then a repartition or a savepoint filled it: what it copied is no update. 0 where nothing did."""


def role_of(cluster: Cluster, topic: str) -> TopicRole:
    """What the catalogs on this cluster say a topic is. An application whose catalog cannot be read names none."""
    topics = set(cluster.list_topics())
    owners = [topic[:at] for at in range(1, len(topic)) if topic[at] == "-"]
    for app in owners:
        catalog = _catalog(cluster, app) if control_topic(app) in topics else None
        role = None if catalog is None else _role(catalog, topic)
        if role is not None:
            return role
    return TopicRole()


def is_ours(cluster: Cluster, topic: str) -> bool:
    """True for a changelog in use that the catalog of an application here names: only such a topic may be touched."""
    return role_of(cluster, topic).kind == "changelog"


def _catalog(cluster: Cluster, app: str) -> Catalog | None:
    try:
        return ControlTopic(cluster, app).read()
    except StateflowError:
        return None


def _role(catalog: Catalog, topic: str) -> TopicRole | None:
    """By the newest generation that has such a topic: one that follows sources outlives generations."""
    app = catalog.app.app
    for entry in sorted(catalog.generations.values(), key=lambda one: one.generation, reverse=True):
        for name, store in catalog.stores.items():
            rekeyed = catalog.is_rekeyed(store.stage)
            if topic != changelog_topic(app, name, entry.generation if rekeyed else entry.source_generation):
                continue
            if topic in _changelogs(catalog):
                first = catalog.generations.get(entry.generation if rekeyed else entry.source_generation)
                return TopicRole("changelog", app, (first and first.activated_ms) or 0)
            return TopicRole("filling" if entry.state == "preparing" else "retired", app)
    return None


def _changelogs(catalog: Catalog) -> set[str]:
    return {
        changelog_topic(catalog.app.app, name, catalog.changelog_generation(store.stage))
        for name, store in catalog.stores.items()
    }


def _alike(topics: list[str], app: str) -> list[str]:
    """Changelogs whose names begin with the application's id, and are not those of one that has a longer id."""
    found = [name for name in topics if name.startswith(f"{app}-") and name.endswith("-changelog")]
    longer = [
        f"{name.removesuffix('-control')}-"
        for name in topics
        if name.startswith(f"{app}-") and name.endswith("-control")
    ]
    return [name for name in found if not any(name.startswith(prefix) for prefix in longer)]


def _without_catalog(app: str, alike: list[str]) -> CatalogMissing:
    named = " ".join(f"--topic {name}" for name in alike[:_SHOWN_MAX])
    more = f" and {len(alike) - _SHOWN_MAX} more" if len(alike) > _SHOWN_MAX else ""
    hint = f", for example {named}{more}" if named else ""
    return CatalogMissing(
        f"There is no application {app!r} with a catalog on this cluster, or you may not see it.",
        action=f"Check the id (`stateflow topics`), or name the topics with --topic{hint}. Applications may share the "
        "beginning of their names, so look whose they are; on a guarded cluster ask for READ and DESCRIBE on "
        f"{control_topic(app)} and the changelogs.",
        app=app,
        topics=alike,
    )
