"""Looks up every live key of every changelog, and asks the routing table where it should be."""

from __future__ import annotations

from report import Placement
from topics import newest_by_key

from stateflow.catalog.model import Catalog
from stateflow.catalog.names import changelog_topic
from stateflow.changelog.format import is_reserved
from stateflow.routing import RoutingTable
from stateflow.state.layout import routing_key


def placements(brokers: str, catalog: Catalog) -> list[Placement]:
    """For each re-keyed store: its live keys, and how many are not where the table says."""
    table = RoutingTable.from_entry(catalog.active.routing)
    found = []
    for store in catalog.stores.values():
        if not catalog.is_rekeyed(store.stage):
            continue
        topic = changelog_topic(catalog.app.app, store.name, catalog.active.generation)
        live = {key: kept for key, kept in newest_by_key(brokers, topic).items() if not is_reserved(key)}
        owners = table.partitions_of([routing_key(store.layout, key) for key in live])
        wrong = sum(kept.partition != owner for kept, owner in zip(live.values(), owners, strict=True))
        found.append(Placement(store.name, len(live), wrong))
    return found
