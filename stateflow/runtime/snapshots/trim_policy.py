"""Switching on *image + trim* for an application: the catalog says so, then its changelogs are set for it.

1. The catalog gets the policy, with how long the changelogs have kept deletions so far.
2. Each changelog is set: records may be deleted, never by age or size, and deletions are kept for good. Without that,
   an image that is older than ``delete.retention.ms`` could not be read on from, and with a trimmed log there is
   nothing else to begin with.
3. The catalog gets the time from which that is so.

A crash between any two is repaired by the next start; until step 3 restore goes by how it was before.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog, TrimEntry
from stateflow.catalog.names import changelog_topic
from stateflow.checkpoint.planner import DELETE_RETENTION_MS_DEFAULT
from stateflow.clock import Clock
from stateflow.log.base import Cluster

_LOG = logging.getLogger(__name__)

_DELETIONS_KEPT_MS = 100 * 365 * 24 * 3600 * 1000

TRIMMED_CONFIG = {
    "cleanup.policy": "compact,delete",  # DeleteRecords is refused on a topic that is compacted only
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "delete.retention.ms": str(_DELETIONS_KEPT_MS),
}
"""Settings of a changelog that is deleted before images, beside those of every changelog."""


def expected_trim(cluster: Cluster, found: Catalog | None, images: str) -> TrimEntry:
    """The policy as the catalog is to say it, with images at ``images``; a relative path is made absolute."""
    place = images if "://" in images else str(Path(images).resolve())
    before_ms = DELETE_RETENTION_MS_DEFAULT
    if found is not None and found.app.trim is None:
        before_ms = min([before_ms, *_tombstones_kept_ms(cluster, found)])
    return TrimEntry(enabled=True, images=place, tombstones_before_ms=before_ms)


def changelogs_of(catalog: Catalog) -> list[str]:
    """The changelog topics of the active generation that were made, by name."""
    names = [
        changelog_topic(catalog.app.app, name, catalog.changelog_generation(store.stage))
        for name, store in catalog.stores.items()
    ]
    return sorted(name for name in names if name in catalog.active.topic_ids)


def changes_of(cluster: Cluster, topic: str) -> Mapping[str, str]:
    """Settings that a trimmed changelog should have and has not."""
    present = cluster.topic_config(topic)
    return {name: value for name, value in TRIMMED_CONFIG.items() if not _equal(present.get(name), value)}


def hold_trim_policy(cluster: Cluster, control: ControlTopic, catalog: Catalog, clock: Clock) -> Catalog:
    """Steps 2 and 3, for a catalog that says the policy; nothing for one that does not.

    At every start: a trimmed changelog that somebody has given a retention would lose state by age.
    """
    trim = catalog.app.trim
    if trim is None:
        return catalog
    for topic in changelogs_of(catalog):
        changes = changes_of(cluster, topic)
        if changes:
            _LOG.info("%s is set for image and trim: %s.", topic, changes)
            cluster.alter_topic_config(topic, changes)
    if trim.since_ms:
        return catalog
    since = msgspec.structs.replace(trim, since_ms=clock.now_ms())
    return control.write([msgspec.structs.replace(catalog.app, trim=since)])


def _equal(present: str | None, wanted: str) -> bool:
    return present is not None and sorted(present.split(",")) == sorted(wanted.split(","))


def _tombstones_kept_ms(cluster: Cluster, catalog: Catalog) -> list[int]:
    there = cluster.describe(changelogs_of(catalog))
    return [int(cluster.topic_config(topic)["delete.retention.ms"]) for topic in there]
