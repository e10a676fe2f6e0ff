"""Questions for keys while a restore is under way: what is asked, by when it is answered at the latest, the answer."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from stateflow.catalog.model import Catalog, StoreEntry
from stateflow.errors import ConfigError
from stateflow.record import OffsetRange
from stateflow.routing import RoutingTable
from stateflow.state.decoding import Row, StoreDecoder

Source = Literal["range", "local", "image", "restored", "nothing"]
"""Where an answer is from: a range of the changelog that was read, what was on the local disk before, the image that
was fetched, or the store after its task was restored. ``nothing``: no partition that may have the key has it.
"""


@dataclass(frozen=True, slots=True)
class Bound:
    """At the latest when a key is answered: after so much was read, of the changelog and of an image."""

    slots: int
    """Offset slots that may have to be read before, those that are being read included."""
    image_bytes: int
    """Bytes of images that have to be fetched first where the changelog behind them does not have the key."""
    seconds: float | None
    """What the slots take at the rate of the last seconds; None before there is one."""


@dataclass(frozen=True, slots=True)
class Answer:
    """All that a store holds for one key; what the restored store will say, too."""

    store: str
    key: str
    rows: tuple[Row, ...]
    source: Source
    task: str | None
    """The task whose changelog has the key; None for ``nothing``."""
    offsets: OffsetRange | None
    """The range in which the key's newest record was found."""
    seconds: float
    """From the question to the answer."""


@dataclass(slots=True, eq=False)
class Ask:
    """One question. Answered by the thread of the restore, waited for by any other."""

    entry: StoreEntry
    key: str
    """As a person writes it."""
    routing_key: bytes
    tasks: tuple[str, ...]
    """Tasks whose partitions may have the key, the likeliest first."""
    asked_seconds: float
    bound: Bound | None = None
    """As it was when the question was taken up, or when the restore was planned anew."""
    answer: Answer | None = None
    searched: dict[str, int] = field(default_factory=dict)
    """Task → offset from which on its changelog is known not to have the key."""
    lacking: set[str] = field(default_factory=set)
    """Tasks that are known not to have the key."""
    _ended: threading.Event = field(default_factory=threading.Event)

    def awaits(self, store: str) -> bool:
        """Whether the answer waits for a store: where a key has many entries, for all stores of its task."""
        return self.entry.layout != "plain" or store == self.entry.name

    def wait(self, seconds: float) -> Answer | None:
        """The answer; None when there is none within this time, or the restore ended without one."""
        self._ended.wait(seconds)
        return self.answer

    @property
    def waits_for(self) -> str:
        """The task to look in next."""
        return next(name for name in self.tasks if name not in self.lacking)

    def plan_anew(self) -> None:
        """What was found of the logs so far, and the bound, were of a plan that is void."""
        self.searched, self.lacking, self.bound = {}, set(), None

    @property
    def is_over(self) -> bool:
        """True when it is answered, or never will be."""
        return self._ended.is_set()

    def end(self, answer: Answer | None = None) -> None:
        """Let go of whoever waits; an answer that was given stays."""
        if not self._ended.is_set():
            self.answer = answer
            self._ended.set()


class Asks:
    """The questions of one application's restore that are not answered yet."""

    def __init__(self, catalog: Catalog, tasks: Iterable[str]) -> None:
        self._catalog = catalog
        self._tasks = set(tasks)
        self._lock = threading.Lock()
        self._open: list[Ask] = []
        self._is_closed = False

    def ask(self, store: str, key: str, now_seconds: float) -> Ask:
        """Take a question up; the one that is open, when the same is asked again.

        Raises ``ConfigError`` for a store or key that cannot be, and for one of a partition that is not restored.
        """
        entry = self._catalog.stores.get(store)
        if entry is None:
            raise ConfigError(
                f"{self._catalog.app.app!r} has no store {store!r}.",
                action=f"its stores are: {', '.join(sorted(self._catalog.stores)) or 'none'}.",
            )
        routing_key = StoreDecoder(entry).key_bytes(key)
        ask = Ask(entry, key, routing_key, self._tasks_of(entry, routing_key), now_seconds)
        if not ask.tasks:
            raise ConfigError(
                f"the partition of {key!r} is not among those that are restored.",
                action="leave out --partition, or ask for a key of those partitions.",
            )
        with self._lock:
            for same in self._open:
                if (same.entry.name, same.key) == (store, key) and not same.is_over:
                    return same
            if self._is_closed:
                ask.end()
            else:
                self._open.append(ask)
        return ask

    @property
    def open(self) -> Sequence[Ask]:
        """Those without an answer, in the order in which they came."""
        with self._lock:
            self._open = [ask for ask in self._open if not ask.is_over]
            return tuple(self._open)

    def refuse_more(self) -> None:
        """Questions from now on end without an answer; those that are open do not."""
        with self._lock:
            self._is_closed = True

    def close(self) -> None:
        """No answer comes any more."""
        self.refuse_more()
        with self._lock:
            for ask in self._open:
                ask.end()
            self._open = []

    def _tasks_of(self, entry: StoreEntry, routing_key: bytes) -> tuple[str, ...]:
        """Behind a re-key step the routing table owns the key; where a source is read, its producers chose."""
        partitions = self._catalog.partitions(entry.stage)
        is_routed = self._catalog.stages[entry.stage].source_partitions is None
        table = (
            RoutingTable.from_entry(self._catalog.active.routing)
            if is_routed
            else RoutingTable.modulo(partitions)
        )
        owner = table.partition_of(routing_key)
        others = [] if is_routed else [number for number in range(partitions) if number != owner]
        names = (f"{entry.stage}-{number}" for number in (owner, *others))
        return tuple(name for name in names if name in self._tasks)
