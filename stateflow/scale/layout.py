"""Routing keys of many entries at once."""

from __future__ import annotations

from collections.abc import Sequence

from stateflow.catalog.model import KeyLayout
from stateflow.state.layout import routing_key


def routing_keys(layout: KeyLayout | None, keys: Sequence[bytes]) -> Sequence[bytes]:
    """What the routing table is asked about; a record of a repartition topic (None) is routed by its own
    key.
    """
    if layout is None or layout == "plain":
        return keys
    return [routing_key(layout, key) for key in keys]
