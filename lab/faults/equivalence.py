"""The log in memory against a real cluster: the same generated history on both, and what can be seen compared.

The simulation is only as good as its log. ``compare(seed, memory, real)`` plays transactional writes, aborts, dangling
transactions and their fencing, DeleteRecords, topics created again, committed offsets and reads, step by step on both,
and looks at log start, last stable offset, end, offsets, visible records and errors after each.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

from stateflow.errors import StateflowError
from stateflow.log.base import Cluster, Committed, TopicSpec, Writer
from stateflow.record import TopicPartition

STEPS = 12
_WRITERS = 2
_KEYS = 4
_READ_SECONDS = 0.2
_READ_SECONDS_MAX = 10.0
_PAUSE_SECONDS = 0.02
_VERBS = (
    ("plain", 4),
    ("commit", 5),
    ("abort", 4),
    ("open_more", 4),
    ("end", 4),
    ("fence", 3),
    ("trim", 2),
    ("offsets", 2),
    ("read", 3),
    ("recreate", 1),
)
_CONFIG = {"cleanup.policy": "compact,delete", "retention.ms": "-1", "min.cleanable.dirty.ratio": "1.0"}


class LogStep(NamedTuple):
    """One use of a log."""

    verb: str
    writer: int
    amount: int
    """Records to send, a per cent of the log, or whether to commit: what the verb takes."""


class Difference(NamedTuple):
    """Where the two logs no longer agree."""

    seed: int
    step: int
    what: str
    memory: object
    real: object


def log_history(seed: int) -> tuple[LogStep, ...]:
    """The steps of a seed."""
    rng = random.Random(f"log-{seed}")  # noqa: S311 - nothing secret: it must be repeatable
    verbs, weights = zip(*_VERBS, strict=True)
    steps = [LogStep("plain", 0, rng.randint(1, 3))]
    for verb in rng.choices(verbs, weights, k=STEPS):
        amount = rng.randint(0, 120) if verb in ("trim", "read") else rng.randint(1, 3)
        steps.append(LogStep(verb, rng.randrange(_WRITERS), amount))
    return tuple(steps)


class LogPlayer:
    """Plays a history on one cluster. ``name`` makes its topic, group and ids its own."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._source = TopicPartition(name, 0)
        self._writers: dict[int, Writer] = {}
        self._open: set[int] = set()
        self._sent = 0
        self._ids: list[str] = []
        self._create()

    def play(self, step: LogStep) -> object:
        """Carry out one step; what it returned, or the error that it ended with."""
        try:
            return getattr(self, f"_{step.verb}")(step)
        except StateflowError as error:
            return type(error).__name__

    def look(self) -> dict[str, object]:
        """What anyone can see now."""
        stable = self._cluster.ranges([self._source])[self._source]
        end = self._cluster.ranges([self._source], stable=False)[self._source]
        committed = self._cluster.committed(self._name, [self._source], stable=False)
        return {
            "stable": tuple(stable),
            "end": tuple(end),
            "committed": [tuple(self._plain_offset(at)) for at in committed.values()],
            "records": self._records(stable.offset_first),
        }

    def close(self) -> None:
        """Abort what is open and let go."""
        for writer in self._writers.values():
            writer.close()
        self._cluster.delete([self._name])

    # --- verbs ----------------------------------------------------------------------------------------

    def _plain(self, step: LogStep) -> object:
        with closing(self._cluster.writer()) as writer:
            self._send(writer, step.amount)
            return writer.commit()[self._source].offset

    def _commit(self, step: LogStep) -> object:
        if step.writer in self._open:
            return "open already"
        writer = self._writer(step.writer)
        writer.begin()
        self._send(writer, step.amount)
        return writer.commit()[self._source].offset

    def _abort(self, step: LogStep) -> object:
        if step.writer in self._open:
            return "open already"
        writer = self._writer(step.writer)
        writer.begin()
        self._send(writer, step.amount)
        writer.flush()  # otherwise a client may throw away what it has not sent yet
        writer.abort()
        return self._made_anew(step.writer)

    def _open_more(self, step: LogStep) -> object:
        writer = self._writer(step.writer)
        if step.writer not in self._open:
            writer.begin()
            self._open.add(step.writer)
        self._send(writer, step.amount)
        writer.flush()
        return "open"

    def _end(self, step: LogStep) -> object:
        if step.writer not in self._open:
            return "nothing open"
        self._open.discard(step.writer)
        if step.amount % 2:
            return self._writer(step.writer).commit()[self._source].offset
        self._writer(step.writer).abort()
        return self._made_anew(step.writer)

    def _fence(self, step: LogStep) -> object:
        """A successor; then its predecessor tries to commit what it had open."""
        before, was_open = self._writer(step.writer), step.writer in self._open
        self._open.discard(step.writer)
        del self._writers[step.writer]
        self._writer(step.writer)
        try:
            if was_open:
                before.commit()
        finally:
            before.close()
        return "fenced" if not was_open else "committed although fenced"

    def _trim(self, step: LogStep) -> object:
        end = self._cluster.ranges([self._source], stable=False)[self._source]
        self._cluster.trim({self._source: end.offset_next * step.amount // 100})
        return "trimmed"

    def _offsets(self, step: LogStep) -> object:
        """Input offsets in a transaction: with records, or committed from outside."""
        if step.writer in self._open:
            self._writer(step.writer).send_offsets(
                {self._source: Committed(step.amount, f"at {step.amount}")}, self._name, None
            )
            return "in the transaction"
        if self._open:
            return "left alone"
        self._cluster.commit(self._name, {self._source: Committed(step.amount, "outside")})
        return "outside"

    def _read(self, step: LogStep) -> object:
        end = self._cluster.ranges([self._source], stable=False)[self._source]
        return self._records(end.offset_next * step.amount // 100)

    def _recreate(self, _step: LogStep) -> object:
        for number in sorted(self._open):
            self._writer(number).abort()
            self._made_anew(number)
        self._open.clear()
        self._cluster.delete([self._name])
        self._create()
        return len(set(self._ids))

    # --- inside ---------------------------------------------------------------------------------------

    def _create(self) -> None:
        info = self._cluster.create([TopicSpec(self._name, 1, config=_CONFIG)])[self._name]
        self._ids.append(info.topic_id)

    def _writer(self, number: int) -> Writer:
        if number not in self._writers:
            self._writers[number] = self._cluster.writer(f"{self._name}-{number}")
        return self._writers[number]

    def _made_anew(self, number: int) -> str:
        """A producer that has aborted is never used again; the next one fences it."""
        self._writers.pop(number).close()
        self._writer(number)
        return "made anew"

    def _send(self, writer: Writer, count: int) -> None:
        for _ in range(count):
            self._sent += 1
            key, value = b"k%d" % (self._sent % _KEYS), b"v%d" % self._sent
            writer.send(self._name, key, value, partition=0, headers=(("n", b"%d" % self._sent),))

    def _records(self, offset_first: int) -> object:
        """Offset, key, value and header of everything visible from an offset on, and where reading ends."""
        target = self._cluster.ranges([self._source])[self._source].offset_next
        found: list[Any] = []
        with closing(self._cluster.reader()) as reader:
            reader.assign({self._source: offset_first})
            deadline = time.monotonic() + _READ_SECONDS_MAX
            while True:
                for batch in reader.read(1000, _READ_SECONDS):
                    found += [(r.offset, r.key, r.value, r.headers) for r in batch.records()]
                if reader.position(self._source) >= target or time.monotonic() > deadline:
                    return (tuple(found), max(offset_first, target))

    @staticmethod
    def _plain_offset(at: Committed) -> tuple[int, str]:
        return (at.offset_next, at.metadata)


def compare(
    seed: int, memory: Cluster, real: Cluster, name: str, settle_seconds: float = 10.0
) -> Difference | None:
    """Play one history on both; the first difference, or None.

    What is seen on the real one may need a moment, ``settle_seconds`` at most: markers follow a commit.
    """
    players = LogPlayer(memory, name), LogPlayer(real, name)
    try:
        for number, step in enumerate(log_history(seed)):
            done, done_real = (player.play(step) for player in players)
            if done != done_real:
                return Difference(seed, number, f"result of {step}", done, done_real)
            seen = players[0].look()
            seen_real = _settled(players[1].look, seen, settle_seconds)
            for what, value in seen.items():
                if seen_real[what] != value:
                    return Difference(seed, number, f"{what} after {step}", value, seen_real[what])
        return None
    finally:
        for player in players:
            player.close()


def _settled(
    look: Callable[[], dict[str, object]], wanted: dict[str, object], settle_seconds: float
) -> dict[str, object]:
    """Look until it is as wanted, or for long enough."""
    deadline = time.monotonic() + settle_seconds
    while (seen := look()) != wanted and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
    return seen
