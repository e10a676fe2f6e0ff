"""Compares what the application says with what the oracle says, key by key and field by field."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

EXAMPLES_SHOWN = 20


@dataclass(frozen=True)
class Comparison:
    """One set of results against its right answers. Numbers must be equal to the last bit."""

    name: str
    expected: int
    """Keys that the oracle has."""
    compared: int
    """Keys that both have."""
    mismatches: int
    """Keys that differ in a field, are missing, or should not be there."""
    examples: list[str] = field(default_factory=list)
    """The first mismatches, as sentences."""

    @property
    def equal(self) -> bool:
        """True when there was something to compare and all of it agreed."""
        return self.mismatches == 0 and self.compared == self.expected > 0


def compare(
    name: str, expected: Mapping[Any, Mapping[str, Any]], actual: Mapping[Any, Mapping[str, Any]]
) -> Comparison:
    """Compare two tables by key; every field that the oracle has must be there and equal."""
    found: list[str] = []
    for key in sorted(expected.keys() | actual.keys(), key=str):
        if key not in actual:
            found.append(f"{label(key)} is missing.")
        elif key not in expected:
            found.append(f"{label(key)} should not be there.")
        elif different := differing_fields(expected[key], actual[key]):
            found.append(f"{label(key)}: " + "; ".join(different) + ".")
    both = len(expected.keys() & actual.keys())
    return Comparison(name, len(expected), both, len(found), found[:EXAMPLES_SHOWN])


def compare_ranking(
    name: str, expected: Sequence[tuple[str, int]], actual: Sequence[tuple[str, int]]
) -> Comparison:
    """Compare two lists place by place."""

    def by_place(ranking: Sequence[tuple[str, int]]) -> dict[str, dict[str, Any]]:
        return {f"place {place:02}": {"entry": tuple(entry)} for place, entry in enumerate(ranking, start=1)}

    return compare(name, by_place(expected), by_place(actual))


def differing_fields(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    """Which fields of one key differ, and how."""
    return [
        f"{name} is {actual.get(name)!r}, should be {right!r}"
        for name, right in expected.items()
        if actual.get(name) != right or name not in actual
    ]


def label(key: Hashable) -> str:
    """A key as a reader knows it."""
    return " ".join(str(part) for part in key) if isinstance(key, tuple) else str(key)
