"""What a benchmark found: figures of each side, and ours against each of the others, pair by pair."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from zlib import crc32

OURS = "stateflow"
Side = TypeVar("Side")


def in_turns(sides: Sequence[Side], number: int) -> Iterator[Side]:
    """The sides in the order of a round: who begins changes, so that a slow minute meets each of them at times."""
    turn = number % len(sides)
    yield from (*sides[turn:], *sides[:turn])


def medians(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, float]]:
    """Of each side the median of each figure over its rounds."""
    return {
        side: {name: statistics.median(each[name] for each in runs) for name in runs[0]}
        for side, runs in found.items()
    }


@dataclass(frozen=True, slots=True)
class Ran:
    """One side's run: of how many records, wall time and CPU of its process in seconds, and what it computed."""

    records: int
    seconds: float
    cpu_seconds: float
    digest: str
    mode: str = ""
    """How it worked, where there are several ways."""
    rss_bytes_max: int = 0

    @property
    def cpu_seconds_per_million(self) -> float:
        """CPU seconds for a million records."""
        return self.cpu_seconds / self.records * 1e6

    @property
    def records_per_second(self) -> float:
        """Throughput."""
        return self.records / self.seconds


Round = Mapping[str, Ran]
"""The runs of one round by the side's name."""


def bytes_digest(entries: Mapping[bytes, bytes]) -> str:
    """Keys and values, whatever their order: how many, and the sum of their CRCs modulo 2^64.

    The same is computed in ``Measured.java``.
    """
    total = sum(crc32(key + value) for key, value in entries.items())
    return f"{len(entries)}:{total % (1 << 64):x}"


def records_digest(records: Iterable[tuple[int, bytes, bytes]]) -> str:
    """The same of records, each with its partition."""
    count = total = 0
    for partition, key, value in records:
        count += 1
        total += crc32(partition.to_bytes(4, "big") + key + value)
    return f"{count}:{total % (1 << 64):x}"


def summary(rounds: Sequence[Round]) -> dict[str, Any]:
    """Medians and spreads over the rounds. A ratio above 1 says that this project is the faster, or the cheaper."""
    sides = list(rounds[0])
    others = [side for side in sides if side != OURS]
    return {
        "sides": {side: _figures([round_[side] for round_ in rounds]) for side in sides},
        "ratios": _ratios(rounds, others, lambda ran: 1 / ran.records_per_second),
        "cpu_ratios": _ratios(rounds, others, lambda ran: ran.cpu_seconds_per_million),
        "cpu_seconds_per_million": {
            side: round(statistics.median(round_[side].cpu_seconds_per_million for round_ in rounds), 2)
            for side in sides
        },
        "same_result": len({ran.digest for round_ in rounds for ran in round_.values()}) == 1,
        "runs": len(rounds),
        "mode": rounds[0][OURS].mode,
    }


def _figures(runs: Sequence[Ran]) -> dict[str, Any]:
    rates = [ran.records_per_second for ran in runs]
    cpu = [ran.cpu_seconds_per_million for ran in runs]
    return {
        "records_per_second": round(statistics.median(rates)),
        "records_per_second_spread": [round(min(rates)), round(max(rates))],
        "cpu_seconds_per_million_spread": [round(min(cpu), 2), round(max(cpu), 2)],
        "rss_bytes_max": max(ran.rss_bytes_max for ran in runs),
    }


def _ratios(
    rounds: Sequence[Round], others: Sequence[str], cost: Callable[[Ran], float]
) -> dict[str, dict[str, Any]]:
    found = {}
    for side in others:
        pairs = [cost(round_[side]) / cost(round_[OURS]) for round_ in rounds]
        found[side] = {
            "median": round(statistics.median(pairs), 2),
            "spread": [round(min(pairs), 2), round(max(pairs), 2)],
        }
    return found
