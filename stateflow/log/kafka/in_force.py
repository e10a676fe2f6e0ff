"""Whether a change of settings has arrived: a broker says yes to it before it has applied it.

Whoever reads settings right after a change, to check it or to take it back, would otherwise read the old ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# `ConfigSource` of overrides, by what they are set on.
TOPIC_SOURCE = 1  # DYNAMIC_TOPIC_CONFIG
BROKER_SOURCE = 2  # DYNAMIC_BROKER_CONFIG


def are_in_force(entries: Mapping[str, Any], changes: Mapping[str, str | None], source: int) -> bool:
    """True when ``entries`` (as described by the broker) show ``changes``; None stands for an override removed.

    ``source`` tells which overrides were changed: ``TOPIC_SOURCE`` or ``BROKER_SOURCE``.
    """
    overrides = {name: entry.value for name, entry in entries.items() if entry.source == source}
    return all(
        name not in overrides if value is None else _same(overrides.get(name), value)
        for name, value in changes.items()
    )


def _same(found: str | None, wanted: str) -> bool:
    """Equal as text, or as numbers: a broker may write 0.10 as 0.1."""
    if found is None or found == wanted:
        return found == wanted
    try:
        return float(found) == float(wanted)
    except ValueError:
        return False
