"""Answers as they come out of the application, compared with the right ones, and how long each took."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stateflow.lab.following import TopicFollower
from stateflow.lab.linear_road.oracle import BALANCE, Answer
from stateflow.log.base import Cluster
from stateflow.record import RecordBatch

OLDER_BALANCE = 5
_EMIT_FIELD = {0: 3}
_EMIT_FIELD_OTHERS = 2
_TIME_FIELD = {0: 2}


@dataclass(frozen=True, slots=True)
class Comparison:
    """What became of the right answers."""

    right: int
    missing: int
    wrong: int
    """Answers that are not right, or that were given more than once."""
    examples: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """True when each right answer was given once, and nothing else."""
        return self.missing == self.wrong == 0


def parsed(line: str) -> Answer:
    """A line of the application without the time at which it was emitted."""
    fields = tuple(map(int, line.split(",")))
    emit = _EMIT_FIELD.get(fields[0], _EMIT_FIELD_OTHERS)
    return (*fields[:emit], *fields[emit + 1 :])


def time_of(answer: Answer) -> int:
    """The second of the report or the query that is answered."""
    return answer[_TIME_FIELD.get(answer[0], 1)]


def compare(expected: Iterable[Answer], found: Iterable[Answer]) -> Comparison:
    """Each right answer must be there once; of a balance and the one before the newest charge, one of the two."""
    given = Counter(found)
    wanted = Counter(expected)
    older = {_question(answer): answer for answer in wanted if answer[0] == OLDER_BALANCE}
    right, missing = 0, []
    for answer, times in wanted.items():
        if answer[0] == OLDER_BALANCE:
            continue
        other = older.get(_question(answer)) if answer[0] == BALANCE else None
        taken = min(times, given[answer])
        given[answer] -= taken
        if other is not None and taken < times:
            instead = min(times - taken, given[other])
            given[other] -= instead
            taken += instead
        right += taken
        missing += [answer] * (times - taken)
    wrong = list((+given).elements())
    examples = [f"missing {answer}" for answer in missing[:3]] + [f"wrong {answer}" for answer in wrong[:3]]
    return Comparison(right, len(missing), len(wrong), tuple(examples))


def _question(answer: Answer) -> tuple[int, int]:
    """Second and number of the query that a balance answers."""
    return answer[1], answer[3]


class Collector(TopicFollower):
    """Reads committed answers as they come, each with the moment at which it was there. ``close`` ends it."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        super().__init__(cluster, topic, partitions)
        self.answers: list[tuple[float, Answer]] = []
        """Moment on the monotonic clock and answer, in the order of arrival."""

    def take(self, batch: RecordBatch) -> None:
        """Parse and keep them."""
        now = time.monotonic()
        self.answers += [(now, parsed((value or b"").decode())) for value in batch.values]


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile; 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100).__trunc__() - 1)]
