"""Values replaced by what an outside service answers, several calls at a time.

All calls of a batch are made within ``process``: when it returns none is under way, so a commit covers whole batches
and exactly-once needs nothing new. Whatever ends a batch early cancels its calls.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from stateflow.clock import Clock
from stateflow.codec.base import Codec
from stateflow.codec.structured import MsgPack
from stateflow.duration import declared_ms
from stateflow.errors import GraphError
from stateflow.operators.calls.call_limits import CallLimits
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.error_policy import Policy, dead_letter_topics
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.rows import left_of, picked, with_values, without
from stateflow.operators.steps.step import Environment, Step
from stateflow.operators.topology.graph import Graph, Node
from stateflow.record import RecordBatch

if TYPE_CHECKING:
    from stateflow.operators.calls.calls import Calls, Outcome


@dataclass(frozen=True, slots=True)
class Cache:
    """Answers that are kept in memory, per task, so that equal questions are not asked again.

    With it results depend on when records are processed. It is lost when the task is closed or fails.
    """

    entries_max: int
    """Beyond these the answer that was used longest ago goes."""
    ttl: timedelta
    """How long an answer is used, by the clock."""

    def __post_init__(self) -> None:
        if self.entries_max < 1 or declared_ms("ttl of a cache", self.ttl) < 1:
            raise GraphError(f"{self!r} keeps nothing.", action="Give at least one entry and 1 ms.")


@dataclass(frozen=True, slots=True)
class Asking:
    """What is asked of whom, and how."""

    function: Callable[[Any], Any]
    limits: CallLimits
    ordered: bool
    cache: Cache | None
    of: Callable[[Any], Any] | None
    """The question for a value; None for the value itself."""
    into: Callable[[Any, Any], Any] | None
    """The result of a value and the answer; None for the answer itself."""


def map_async_node(
    graph: Graph, parent: Node, asking: Asking, value: Codec[Any] | None, on_error: Policy
) -> Node:
    """The step as a node of the graph."""
    name = graph.numbered("map_async")
    return graph.add(
        Node(
            kind="map_async",
            name=name,
            parents=(parent,),
            make=lambda env: _step(name, asking, env, on_error),
            key=parent.key,
            value=value,
            keyed=parent.keyed,
            outputs=dead_letter_topics(on_error),
        )
    )


def _step(name: str, asking: Asking, env: Environment, on_error: Policy) -> Step:
    from stateflow.operators.calls.calls import Calls  # brings in asyncio, which takes as long as all of us

    calls = Calls(name, asking.function, asking.limits)
    env.context.at_close(calls.close)
    env.context.takes_at_once(asking.limits.concurrency)
    return AsyncStep(asking, calls, env.context, env.guard(name, on_error))


class _Questions(NamedTuple):
    """What is asked for each row; where answers are kept, with the bytes by which equal questions are known."""

    asked: Sequence[Any]
    identities: Sequence[bytes]


class _Done(NamedTuple):
    """A call that is over, and the rows that it was made for."""

    rows: Sequence[int]
    outcome: Outcome


_Take = Callable[[Sequence[_Done]], None]


class AsyncStep(Step):
    """One result for each value in, once its call is answered."""

    def __init__(self, asking: Asking, calls: Calls, context: StageContext, guard: Guard) -> None:
        super().__init__()
        self._calls = calls
        self._context = context
        self._guard = guard
        self._of = asking.of
        self._into = asking.into
        self._ordered = asking.ordered
        self._answers = None if asking.cache is None else _Answers(asking.cache, context.clock)

    def process(self, batch: RecordBatch) -> None:
        """Ask, and pass on the results: at once in order, or in parts as they come."""
        batch, questions = self._questions(batch)
        if not len(batch):
            return
        if self._ordered:
            self._pass_on_in_order(batch, questions)
        else:
            self._pass_on_as_they_come(batch, questions)

    def _pass_on_in_order(self, batch: RecordBatch, questions: _Questions) -> None:
        found: dict[int, Outcome] = {}
        self._ask(questions, lambda several: self._note(several, found, batch))
        rows = range(len(batch))
        self._forward_answers(
            batch, found, [row for row in rows if self._is_answer(found[row], batch.offsets[row])]
        )

    def _pass_on_as_they_come(self, batch: RecordBatch, questions: _Questions) -> None:
        """Pass on rows that are done, as soon as those before them with the same key are."""
        waiting: dict[bytes | None, deque[int]] = defaultdict(deque)
        for row, key in enumerate(batch.keys):
            waiting[key].append(row)
        found: dict[int, Outcome] = {}

        def take(several: Sequence[_Done]) -> None:
            self._note(several, found, batch)
            ready: list[int] = []
            for row in (row for done in several for row in done.rows):
                left = waiting[batch.keys[row]]
                while left and left[0] in found:
                    ready.append(left.popleft())
            self._forward_answers(
                batch, found, [row for row in ready if self._is_answer(found[row], batch.offsets[row])]
            )

        self._ask(questions, take)

    def _questions(self, batch: RecordBatch) -> tuple[RecordBatch, _Questions]:
        """The rows that can be asked about, and what is asked for each."""
        asked: Sequence[Any] = batch.values
        identities: Sequence[bytes] = ()
        if self._of is not None:
            asked, failed = self._guard.map(self._of, batch.values, batch.offsets)
            batch = without(batch, failed)
        if self._answers is not None:  # a question without an identity is refused as any other failure
            identities, failed = self._guard.map(MsgPack.encode, asked, batch.offsets)
            batch, asked = without(batch, failed), left_of(asked, failed)
        return batch, _Questions(asked, identities)

    def _ask(self, questions: _Questions, take: _Take) -> None:
        """Ask each question and give what came of it to ``take``; those whose answer is known are not asked."""
        answers, (asked, identities) = self._answers, questions
        if answers is None:
            self._call(asked, [[row] for row in range(len(asked))], take)
            return
        rows_by: dict[bytes, list[int]] = defaultdict(list)
        for row, identity in enumerate(identities):
            rows_by[identity].append(row)
        known = {identity: outcome for identity in rows_by if (outcome := answers.find(identity)) is not None}
        if known:
            take([_Done(rows_by[identity], outcome) for identity, outcome in known.items()])
        unknown = [identity for identity in rows_by if identity not in known]

        def keep_and_take(several: Sequence[_Done]) -> None:
            for _, outcome in several:
                if outcome.error is None:
                    answers.keep(unknown[outcome.number], outcome)
            take(several)

        rows_of = [rows_by[identity] for identity in unknown]
        self._call([asked[rows[0]] for rows in rows_of], rows_of, keep_and_take)

    def _call(self, questions: Sequence[Any], rows_of: Sequence[Sequence[int]], take: _Take) -> None:
        if not questions:
            return
        with closing(self._calls.ask(questions, lambda: self._context.is_stopping)) as asked:
            for outcomes in asked:
                for outcome in outcomes:
                    if outcome.attempts > 1:
                        self._context.count("retried_records_total", outcome.attempts - 1)
                take([_Done(rows_of[outcome.number], outcome) for outcome in outcomes])

    def _note(self, several: Sequence[_Done], found: dict[int, Outcome], batch: RecordBatch) -> None:
        """Keep outcomes by row. One that stops the task does so at once: the others need not be waited for."""
        for rows, outcome in several:
            found.update(dict.fromkeys(rows, outcome))
            if not self._guard.lets_go:
                self._is_answer(outcome, batch.offsets[rows[0]])

    def _is_answer(self, outcome: Outcome, offset: int) -> bool:
        """True for an answer; False when the record was let go as the policy says, which else raises."""
        if outcome.error is None:
            return True
        if not isinstance(outcome.error, Exception):
            raise outcome.error
        return self._guard.failed(outcome.error, offset, outcome.attempts)

    def _forward_answers(self, batch: RecordBatch, found: dict[int, Outcome], rows: Sequence[int]) -> None:
        answered = picked(batch, rows)
        answers = [found[row].answer for row in rows]
        if self._into is None:
            self.forward(with_values(answered, answers))
            return
        pairs = list(zip(answered.values, answers, strict=True))
        into = self._into
        results, failed = self._guard.map(lambda pair: into(*pair), pairs, answered.offsets)
        self.forward(with_values(without(answered, failed), results))


class _Answers:
    """The answers that a ``Cache`` keeps, least recently used first."""

    def __init__(self, cache: Cache, clock: Clock) -> None:
        self._entries_max = cache.entries_max
        self._ttl_seconds = cache.ttl.total_seconds()
        self._clock = clock
        self._kept: OrderedDict[bytes, tuple[float, Outcome]] = OrderedDict()

    def find(self, identity: bytes) -> Outcome | None:
        """The answer, unless it is too old; None where there is none."""
        kept = self._kept.get(identity)
        if kept is None:
            return None
        asked_seconds, outcome = kept
        if self._clock.monotonic_seconds() - asked_seconds >= self._ttl_seconds:
            del self._kept[identity]
            return None
        self._kept.move_to_end(identity)
        return outcome

    def keep(self, identity: bytes, outcome: Outcome) -> None:
        """Keep an answer from now on."""
        self._kept[identity] = self._clock.monotonic_seconds(), outcome
        self._kept.move_to_end(identity)
        if len(self._kept) > self._entries_max:
            self._kept.popitem(last=False)
