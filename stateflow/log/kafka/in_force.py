"""Whether a change of settings has arrived: a broker says yes to it before it has applied it.

Whoever reads settings right after a change, to check it or to take it back, would otherwise read the old ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

# `ConfigSource` of overrides, by what they are set on.
TOPIC_SOURCE = 1  # DYNAMIC_TOPIC_CONFIG
BROKER_SOURCE = 2  # DYNAMIC_BROKER_CONFIG


def are_in_force(entries: Mapping[str, Any], changes: Mapping[str, str | None], source: int) -> bool:
    """True when ``entries`` (as described by the broker) show ``changes``; None stands for an override removed.

    ``source`` tells which overrides were changed: ``TOPIC_SOURCE`` or ``BROKER_SOURCE``.
    """
    overrides = {name: entry.value for name, entry in entries.items() if entry.source == source}
    return all(same_value(overrides.get(name), value) for name, value in changes.items())


def same_value(found: str | None, wanted: str | None) -> bool:
    """Equal as text or as numbers: a broker answers 0 as 0.0, and 0.0001 as 1.0E-4. None (no override) equals None.

    Whole numbers are compared exactly, as 2^63 - 1 and 2^63 - 2 are different times; others as the doubles they are.
    """
    if found is None or wanted is None or found == wanted:
        return found == wanted
    try:
        one, other = Decimal(found), Decimal(wanted)
        whole = one == one.to_integral_value() and other == other.to_integral_value()
        return one == other if whole else float(one) == float(other)
    except (ArithmeticError, ValueError):
        return False
