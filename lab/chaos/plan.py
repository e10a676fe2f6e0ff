"""What happens in a study: rounds of input, and in each of them faults and operations, all drawn from one seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal[
    "kill-worker",
    "kill-all",
    "kill-supervisor",
    "freeze-worker",
    "kill-broker",
    "restart-broker",
    "stop",
    "stop-without-broker",
    "lose-disk",
    "scale",
    "scale-killed",
    "savepoint",
    "savepoint-stopped",
    "savepoint-restore",
    "images",
    "compaction",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
QUICK_KINDS: tuple[Kind, ...] = ("kill-worker", "scale")
WORKERS = 2
_STOPPED_FOR: frozenset[Kind] = frozenset(
    ("lose-disk", "scale", "scale-killed", "savepoint-stopped", "savepoint-restore", "images")
)
"""What is done while the application stands."""
_KILLED_FOR = 0.4
"""How often it is killed for that, and not asked to stop: much is then unread, and a transaction may be open."""
BROKER_KINDS: frozenset[Kind] = frozenset(("kill-broker", "restart-broker", "stop-without-broker"))
"""What happens to brokers."""
_AWAY_SECONDS, _FROZEN_SECONDS = (0.0, 2.0, 8.0), (1.0, 4.0, 15.0)
"""Less and more than a broker's session, or a member's."""
_PAUSES_SECONDS = (0.0, 0.1, 0.5, 1.0)
"""Commits are a second apart."""
_RESTARTS_MAX = 4
"""The supervisor gives up a worker that was killed more than five times within two minutes; a broker that restarts may
end one, too. So the application is stopped in order before that, whatever the time."""
_COUNTED: frozenset[Kind] = frozenset(("kill-worker", "freeze-worker", "kill-broker", "restart-broker"))
_SAME_SUPERVISOR: frozenset[Kind] = _COUNTED | {"savepoint", "compaction"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One fault or operation. What its kind does not use has no meaning."""

    kind: Kind
    pause_seconds: float = 0.0
    """How long after the input was sent it strikes."""
    target: int = 0
    """Which worker or broker."""
    seconds: float = 0.0
    """How long something hangs or is away, or how long after its beginning it is killed."""
    partitions: int = 0
    kills: bool = False
    """Whether the application is killed for what needs it to stand."""
    at_once: bool = False
    """Whether another supervisor starts while the workers of the killed one still end."""
    finishes: bool = True
    """Whether what was killed amid its work is carried out then, and what was set stays: undone otherwise. Of a
    repartition, whether the topics of before are deleted.
    """

    def __str__(self) -> str:
        carried_out = "carried out" if self.finishes else "undone"
        said: dict[Kind, str] = {
            "scale": f" to {self.partitions}{', finalized' if self.finishes else ''}",
            "scale-killed": f" to {self.partitions}, killed after {self.seconds:.1f} s and {carried_out}",
            "kill-supervisor": ", another at once" if self.at_once else "",
            "kill-worker": f" w{self.target}",
            "freeze-worker": f" w{self.target} for {self.seconds:.0f} s",
            "compaction": "" if self.finishes else ", undone",
        }
        away = f" for {self.seconds:.0f} s" if self.kind in BROKER_KINDS else ""
        killed = ", application killed" if self.kills else ""
        return f"{self.kind}{said.get(self.kind, '')}{away}{killed}"


@dataclass(frozen=True, slots=True)
class Round:
    """So much input in so many chunks, and the events, each behind the chunk whose number stands before it."""

    orders: int
    chunks: int
    events: tuple[tuple[int, Event], ...]


@dataclass(frozen=True, slots=True)
class Size:
    """How large a study is."""

    rounds: int
    orders: int
    kinds: Sequence[Kind]
    events_max: int
    chunks: int
    partitions: range
    """How many the application may have; it begins with the middle."""

    @property
    def partitions_first(self) -> int:
        """How many it begins with."""
        return self.partitions[len(self.partitions) // 2]


FULL = Size(rounds=12, orders=3_000, kinds=KINDS, events_max=3, chunks=6, partitions=range(2, 7))
QUICK = Size(rounds=2, orders=240, kinds=QUICK_KINDS, events_max=1, chunks=2, partitions=range(1, 4))


def plan(seed: int, size: Size, brokers: int) -> list[Round]:
    """All rounds. The same seed and size are the same plan, but for which of the brokers is meant."""
    rng = random.Random(f"chaos-{seed}")  # noqa: S311 - a plan, not a secret
    kinds = _dealt(rng, size.kinds)
    partitions, restarts = size.partitions_first, 0
    rounds = []
    for _ in range(size.rounds):
        events = []
        for _ in range(rng.randint(1, size.events_max)):
            kind = next(kinds)
            restarts = restarts + (kind in _COUNTED) if kind in _SAME_SUPERVISOR else 0
            if restarts > _RESTARTS_MAX:
                events.append(Event(kind="stop"))
                restarts = 1
            event = _drawn(rng, kind, [count for count in size.partitions if count != partitions], brokers)
            if kind == "scale" or (kind == "scale-killed" and event.finishes):
                partitions = event.partitions
            events.append(event)
        places = sorted(rng.randrange(size.chunks) for _ in events)
        rounds.append(Round(size.orders, size.chunks, tuple(zip(places, events, strict=True))))
    return rounds


def _dealt(rng: random.Random, kinds: Sequence[Kind]) -> Iterator[Kind]:
    """Kinds in any order, each once before any comes again."""
    while True:
        yield from rng.sample(kinds, len(kinds))


def _drawn(rng: random.Random, kind: Kind, others: Sequence[int], brokers: int) -> Event:
    """An event of a kind; ``others`` are the numbers of partitions that there may be next."""
    seconds, target, to = 0.0, 0, 0
    if kind in ("kill-worker", "freeze-worker"):
        target = rng.randrange(WORKERS)
    if kind == "freeze-worker":
        seconds = rng.choice(_FROZEN_SECONDS)
    if kind in BROKER_KINDS:
        # Drawn so, how many brokers there are changes nothing of what comes after.
        target, seconds = int(rng.random() * brokers), rng.choice(_AWAY_SECONDS)
    if kind in ("scale", "scale-killed"):
        to = rng.choice(others)
    if kind == "scale-killed":
        seconds = rng.uniform(0.0, 1.5)
    return Event(
        kind=kind,
        pause_seconds=rng.choice(_PAUSES_SECONDS),
        target=target,
        seconds=seconds,
        partitions=to,
        kills=kind in _STOPPED_FOR and rng.random() < _KILLED_FOR,
        at_once=kind == "kill-supervisor" and rng.random() < 0.5,
        finishes=kind not in ("scale", "scale-killed", "compaction") or rng.random() < 0.5,
    )
