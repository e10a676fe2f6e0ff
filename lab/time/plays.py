"""How a log is put through an application: in which batches, with which crashes, under which guarantee."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from stateflow.codec.windowed import SessionCodec, Windowed
from stateflow.config import Guarantee
from stateflow.failpoints import handled
from stateflow.lab.time.logs import Row
from stateflow.lab.time.oracle import Place, Sequences
from stateflow.lab.time.programs import SOURCE, Program
from stateflow.testing.driver import TestDriver

Batching = Literal["one", "each", "random", "polls"]
BATCHINGS: tuple[Batching, ...] = ("one", "each", "random", "polls")
KILL_POINTS = (
    "process.before_batch",
    "process.after_operators",
    "process.after_batch",
    "commit.after_drain",
    "commit.after_changes",
    "commit.before_records",
    "commit.after_records",
    "commit.before_end",
    "commit.after_end",
    "commit.after_apply",
    "commit.done",
)
_PARTITIONS_MAX = 4


class Killed(BaseException):
    """The worker's process is gone; no code of its own may take notice."""


@dataclass(frozen=True)
class Act:
    """One thing done to a running application, beside the rows that it is given."""

    before_row: int
    verb: Literal["crash", "kill", "repartition", "compact"]
    disk_lost: bool = False
    point: str = ""
    hit: int = 1
    partitions: int = 0

    def __str__(self) -> str:
        what = {"kill": f" at {self.point}:{self.hit}", "repartition": f" to {self.partitions}"}
        return f"{self.verb}{what.get(self.verb, '')}{' disk lost' * self.disk_lost} before row {self.before_row}"


@dataclass(frozen=True)
class Play:
    """A way to put a log through an application. Equal ones do the same."""

    guarantee: Guarantee
    batching: Batching
    ends: tuple[int, ...]
    """Where each batch ends, as a number of rows."""
    poll_records: int | None
    acts: tuple[Act, ...]

    def __str__(self) -> str:
        batching = {"random": f"batches up to {self.ends}", "polls": f"polls of {self.poll_records}"}
        return ", ".join(
            (self.guarantee, batching.get(self.batching, f"batch {self.batching}"), *map(str, self.acts))
        )


def random_play(rng: random.Random, rows: int, *, is_scalable: bool) -> Play:
    """A play for a log of so many rows."""
    guarantee: Guarantee = "exactly-once" if rng.random() < 0.7 else "at-least-once"
    batching = rng.choice(BATCHINGS)
    verbs = (
        ["crash", "compact"]
        + ["kill", "kill"] * (guarantee == "exactly-once")
        + ["repartition"] * is_scalable
    )
    acts = [_act(rng, rng.choice(verbs), rows) for _ in range(rng.choice((0, 0, 1, 2, 3)))]
    return Play(
        guarantee,
        batching,
        _ends(rng, batching, rows),
        rng.choice((1, 3, 7)) if batching == "polls" else None,
        tuple(sorted(acts, key=lambda act: act.before_row)),
    )


def _act(rng: random.Random, verb: Any, rows: int) -> Act:
    act = Act(rng.randrange(rows), verb, disk_lost=rng.random() < 0.5)
    if verb == "kill":
        return Act(act.before_row, verb, act.disk_lost, rng.choice(KILL_POINTS), rng.randint(1, 4))
    return Act(act.before_row, verb, act.disk_lost, partitions=rng.randint(1, _PARTITIONS_MAX))


def _ends(rng: random.Random, batching: Batching, rows: int) -> tuple[int, ...]:
    if batching in ("one", "polls"):
        return (rows,)
    if batching == "each":
        return tuple(range(1, rows + 1))
    return (*sorted(rng.sample(range(1, rows), min(rows - 1, rng.randint(1, 8)))), rows)


class Player:
    """One application on a log in memory, and what has come out of it."""

    def __init__(self, program: Program, play: Play) -> None:
        self._app, self._outputs = program.build(play.guarantee)
        self._play = play
        self._partitions = program.shape.partitions
        self._driver = TestDriver(self._app, partitions=self._partitions, poll_records=play.poll_records)
        (self._source,) = [topic for topic in self._app.topics if topic.name == SOURCE]
        self.acts: Counter[str] = Counter()
        """What was done, kills only where they struck."""

    def run(self, rows: Sequence[Row]) -> list[Sequences]:
        """What every output holds after all rows."""
        acts = {act.before_row: act for act in self._play.acts}
        borders = sorted({0, *self._play.ends, *acts})
        for first, after in pairwise(borders):
            self._step(acts.get(first), rows[first:after])
        return [self._found(topic) for topic in self._outputs]

    def _step(self, act: Act | None, rows: Sequence[Row]) -> None:
        if act is None:
            self._send(rows)
        elif act.verb == "kill":
            self._kill(act, rows)
        else:
            self._disturb(act)
            self._send(rows)

    def _disturb(self, act: Act) -> None:
        self.acts[act.verb] += 1
        if act.verb == "repartition":
            self._partitions = act.partitions + (act.partitions == self._partitions)  # a change it must be
            self._driver.repartition(self._partitions)
        elif act.verb == "compact":
            self._driver.compact()
        else:
            self._restart(act)

    def _restart(self, act: Act) -> None:
        self._driver.crash(disk_lost=act.disk_lost)
        self._driver.restore()

    def _kill(self, act: Act, rows: Sequence[Row]) -> None:
        """Die while these rows are processed, the ``hit``-th time that the point is reached."""
        if killed_at(act.point, act.hit, lambda: self._send(rows)):
            self.acts["kill"] += 1
            self._restart(act)

    def _send(self, rows: Sequence[Row]) -> None:
        sent = [(row.key, row.value, row.timestamp_ms) for row in rows]
        self._driver.send_many(self._source, sent, partitions=[row.partition for row in rows])

    def _found(self, topic: Any) -> Sequences:
        found = Sequences()
        for record in self._driver.output(topic):
            key = record.key
            place = Place(key.key, key.start_ms) if isinstance(key, Windowed) else Place(key)
            if isinstance(topic.key, SessionCodec):
                place = place._replace(end_ms=key.end_ms)
            found.setdefault(place, []).append(record.value)
        return found


def killed_at(point: str, hit: int, work: Callable[[], None]) -> bool:
    """Do some work, and die when a failpoint is reached for the ``hit``-th time; False where it never was."""
    reached = 0

    def strike(name: str) -> None:
        nonlocal reached
        reached += name == point
        if reached >= hit:  # and at every further point of what has died
            raise Killed

    try:
        with handled(strike):
            work()
    except Killed:
        return True
    return False


def killed_anywhere(count: int, work: Callable[[], None]) -> bool:
    """Do some work, and die at the so-many-th failpoint that is reached; False where there are fewer."""
    left = count

    def strike(_name: str) -> None:
        nonlocal left
        left -= 1
        if left <= 0:  # and at every further point of what has died
            raise Killed

    with handled(strike):
        try:
            work()
        except Killed:
            return True
    return False
