"""Which topics to tune: the changelogs that an application's catalog names, or any compacted topic by name."""

from __future__ import annotations

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


def is_ours(cluster: Cluster, topic: str) -> bool:
    """True for a changelog that the catalog of an application here names: only such a topic may be touched.

    An application whose catalog cannot be read names none.
    """
    topics = set(cluster.list_topics())
    owners = [topic[:at] for at in range(1, len(topic)) if topic[at] == "-"]
    return any(topic in _named(cluster, app) for app in owners if control_topic(app) in topics)


def _named(cluster: Cluster, app: str) -> set[str]:
    try:
        catalog = ControlTopic(cluster, app).read()
        return set() if catalog is None else _changelogs(catalog)
    except StateflowError:
        return set()


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
        f"There is no application {app!r} with a catalog on this cluster.",
        action=f"Check the id (`stateflow topics`), or name the topics with --topic{hint}.",
        app=app,
        topics=alike,
    )
