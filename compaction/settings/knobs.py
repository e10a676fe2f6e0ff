"""The settings that the tuner may turn, with their legal ranges per broker version and provider, as data.

The broker has the last word: every change is validated there before it is applied, and what it refuses
is reported (:class:`stateflow.errors.BrokerRefused`). The table only keeps the search out of ranges that
are known to be illegal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from stateflow.compaction.settings.providers import provider_named
from stateflow.errors import ConfigError

NEVER_MS = 9_223_372_036_854_775_807
"""Kafka's "never" for a time in ms: the largest int64."""

_INT32_MAX = 2_147_483_647


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting: where it lives, what is legal, what turning it costs."""

    name: str
    scope: Literal["topic", "broker"]
    low: float
    high: float
    default: float
    unit: Literal["ms", "bytes", "ratio", "count"]
    tunable: bool
    """False when the search must leave the setting as it is (refused by the provider, or unsafe to change)."""
    cost: str
    """What happens when it is changed."""

    def clamp(self, value: float) -> float:
        """The nearest legal value."""
        return min(max(value, self.low), self.high)

    def allows(self, value: float) -> bool:
        """True for a value in the legal range (both ends included); never for NaN."""
        return self.low <= value <= self.high

    def read(self, text: str) -> float | None:
        """The value that a text stands for; None where it stands for none, as half a byte."""
        try:
            return float(text) if self.unit == "ratio" else int(text)
        except ValueError:
            return None


_TOPIC_COST = "applies at once, to this topic only"
_THREAD_COST = "restarts every cleaner thread of the broker; affects all compacted topics there"

_BASE: tuple[Knob, ...] = (
    Knob("segment.ms", "topic", 1, NEVER_MS, 604_800_000, "ms", True, _TOPIC_COST),
    Knob("segment.bytes", "topic", 1_048_576, _INT32_MAX, 1_073_741_824, "bytes", True, _TOPIC_COST),
    Knob(
        "segment.index.bytes", "topic", 4, _INT32_MAX, 10_485_760, "bytes", True, "applies from the next roll"
    ),
    Knob("min.cleanable.dirty.ratio", "topic", 0.0, 1.0, 0.5, "ratio", True, _TOPIC_COST),
    Knob("min.compaction.lag.ms", "topic", 0, NEVER_MS, 0, "ms", True, _TOPIC_COST),
    Knob("max.compaction.lag.ms", "topic", 1, NEVER_MS, NEVER_MS, "ms", True, _TOPIC_COST),
    Knob("delete.retention.ms", "topic", 0, NEVER_MS, 86_400_000, "ms", True, _TOPIC_COST),
    Knob("file.delete.delay.ms", "topic", 0, NEVER_MS, 60_000, "ms", True, _TOPIC_COST),
    Knob(
        "log.cleaner.threads",
        "broker",
        1,
        _INT32_MAX,
        1,
        "count",
        True,
        _THREAD_COST + "; at most 2× per step",
    ),
    Knob("log.cleaner.backoff.ms", "broker", 0, NEVER_MS, 15_000, "ms", True, _THREAD_COST),
    Knob(
        "log.cleaner.dedupe.buffer.size",
        "broker",
        1_048_577,
        NEVER_MS,
        134_217_728,
        "bytes",
        True,
        _THREAD_COST,
    ),
)

# Kafka 5 raises the floors so that a typing slip cannot open millions of files (KIP-1030).
_KAFKA_5_LOWS: Mapping[str, float] = {
    "segment.ms": 60_000,
    "max.compaction.lag.ms": 60_000,
    "segment.index.bytes": 1024,
}
# Before Kafka 4.0 a segment could be as small as 14 bytes.
_BEFORE_4_LOWS: Mapping[str, float] = {"segment.bytes": 14}


def knobs_for(broker_version: tuple[int, int] = (4, 3), provider: str = "apache") -> dict[str, Knob]:
    """The knobs that exist on this broker, by name, with what is legal there."""
    lows = _KAFKA_5_LOWS if broker_version >= (5, 0) else _BEFORE_4_LOWS if broker_version < (4, 0) else {}
    limits = provider_named(provider)
    found = {}
    for knob in _BASE:
        low, high = lows.get(knob.name, knob.low), knob.high
        if knob.name in limits.ranges:  # narrower than what the release allows, never wider
            low, high = max(low, limits.ranges[knob.name][0]), min(high, limits.ranges[knob.name][1])
        tunable = knob.tunable and knob.name not in limits.fixed
        found[knob.name] = replace(knob, low=low, high=high, tunable=tunable)
    return found


def knobs_of_any_release() -> dict[str, Knob]:
    """The knobs with what is legal on one release or another: refused everywhere is what is outside of that."""
    return {name: replace(knob, low=_BEFORE_4_LOWS.get(name, knob.low)) for name, knob in knobs_for().items()}


def illegal_from_kafka_5(config: Mapping[str, str]) -> tuple[str, ...]:
    """The settings of these that KIP-1030 makes illegal in Kafka 5, by name."""
    return tuple(sorted(name for name, low in _KAFKA_5_LOWS.items() if float(config.get(name, low)) < low))


def check(changes: Mapping[str, str], knobs: Mapping[str, Knob]) -> None:
    """Raise ``ConfigError`` when a change is no number, outside the legal range, or not ours to make."""
    for name, text in changes.items():
        knob = knobs.get(name)
        if knob is None or not knob.tunable:
            raise ConfigError(
                f"{name} cannot be set here.", action="Leave it out of the change.", setting=name
            )
        value, whole = knob.read(text), "" if knob.unit == "ratio" else "whole "
        if value is None or not knob.allows(value):
            raise ConfigError(
                f"{name}={text} is no {whole}number in the legal range {knob.low} … {knob.high}.",
                action="Choose a value in the range, or name the right broker version and provider.",
                setting=name,
            )
