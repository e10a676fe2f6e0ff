"""Matches of a pattern, found in the records of each key in the order of event time.

State is that of one key: the matches that have begun (a map from the entry of the first record) and the records they
have taken (a map from time and number to values). A match takes less event time than the pattern's ``within``, so a
timer per key decides what is left when the time of the oldest is up, and what no match needs any more is removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import msgspec

from stateflow.codec.base import Codec
from stateflow.codec.scalar import Bytes
from stateflow.codec.structured import MsgPackOf, Plain
from stateflow.operators.classes.operator import Context, Operator, OperatorClass
from stateflow.operators.classes.operator_step import OperatorStep
from stateflow.operators.order.event_time_buffer import at_own_times, last_due_ms, next_entry, time_of
from stateflow.operators.patterns.match import Match
from stateflow.operators.patterns.matching import Begun, Matcher, Offered, Taken
from stateflow.operators.patterns.patterns import AfterMatch, Pattern, SkipTo
from stateflow.operators.stateful.stateful import operator_node
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.error_policy import Policy
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.step import Environment, Step
from stateflow.operators.topology.graph import Graph, Node
from stateflow.record import RecordBatch
from stateflow.state.declaration import state
from stateflow.state.mapof import MapOf

_CLOSE = "close"


@dataclass(frozen=True, slots=True)
class MatchRules:
    """What is looked for, and where further matches may begin."""

    name: str
    pattern: Pattern[Any]
    after: AfterMatch | SkipTo

    def goes_on_from(self, taken: Taken) -> bytes:
        """Matches that begin before this entry are given up once one was found."""
        if self.after == "next":
            return b""
        if isinstance(self.after, SkipTo):
            number = self.pattern.step_number(self.after.step)
            entries = [entry for step, entry in taken if step == number]
            return entries[0] if self.after.record == "first" else entries[-1]
        return taken[-1][1] + b"\0"


class Matching(Operator[Any, Any, Any]):
    """Base of the operators of patterns: subclasses declare their state and rules."""

    rules: MatchRules
    matcher: Matcher
    begun: MapOf[bytes, Begun]
    records: MapOf[bytes, Any]

    def on_record(self, value: Any, ctx: Context[Any]) -> None:
        """Offer the record to the matches that have begun, let it begin one, pass on those that are whole."""
        at_ms = ctx.timestamp_ms
        begun = self._closed(dict(self.begun.items()), at_ms, ctx)
        record = Offered(next_entry(self.records, at_ms), value, self._read)
        changed = {first: self.matcher.offer(each, record) for first, each in begun.items()}
        fresh = self.matcher.begin(record)
        if fresh is not None:
            changed[record.entry] = fresh
        if any(_took(each, record.entry) for each in changed.values()):
            self.records.put(record.entry, value)
        for first, each in changed.items():
            if each.ways and each is not begun.get(first):
                self.begun.put(first, each)
        decided = [first for first, each in changed.items() if not each.ways]
        for first in decided:
            if first in changed:  # and was not given up for one that was found before it
                changed = self._decided(changed, first, changed[first].whole, at_ms, ctx)
        self._forget(changed, ctx)

    def on_timer(self, name: str, ctx: Context[Any]) -> None:  # noqa: ARG002 - it has but one
        """The time of a match is up."""
        self._forget(self._closed(dict(self.begun.items()), ctx.timestamp_ms, ctx), ctx)

    def _closed(self, begun: dict[bytes, Begun], now_ms: int, ctx: Context[Any]) -> dict[bytes, Begun]:
        """The matches without those whose time is up; these are decided, in the order in which they have begun."""
        while begun:
            first = next(iter(begun))
            until_ms = time_of(first) + self.rules.pattern.within_ms
            if until_ms > now_ms:
                break
            begun = self._decided(begun, first, self.matcher.close(begun[first]), until_ms, ctx)
        return begun

    def _decided(
        self, begun: dict[bytes, Begun], first: bytes, whole: Taken | None, at_ms: int, ctx: Context[Any]
    ) -> dict[bytes, Begun]:
        """Take one match out, and those that are given up for it if it was found; pass it on."""
        given_up = {first}
        if whole is not None:
            ctx.emit(self._read(whole), timestamp_ms=at_ms, headers=())  # it is made of several records
            from_entry = self.rules.goes_on_from(whole)
            given_up |= {other for other in begun if other < from_entry}
        for each in given_up:
            self.begun.remove(each)
        return {each: left for each, left in begun.items() if each not in given_up}

    def _forget(self, begun: dict[bytes, Begun], ctx: Context[Any]) -> None:
        """Remove the records before the oldest match, and wait until its time is up."""
        oldest = next(iter(begun), None)
        for entry, _ in self.records.range(None, oldest):
            self.records.remove(entry)
        if oldest is None:
            ctx.cancel_timer(_CLOSE)
        else:
            ctx.timer(_CLOSE, at=time_of(oldest) + self.rules.pattern.within_ms)

    def _read(self, taken: Taken) -> Match[Any]:
        found: dict[str, list[Any]] = {step.name: [] for step in self.rules.pattern.steps}
        names = list(found)
        for number, entry in taken:
            found[names[number]].append(self.records[entry])
        times_ms = (time_of(taken[0][1]), time_of(taken[-1][1])) if taken else (-1, -1)
        return Match(found, times_ms)


def _took(begun: Begun, entry: bytes) -> bool:
    return any(taken[-1][1] == entry for taken in _all_taken(begun))


def _all_taken(begun: Begun) -> Iterator[Taken]:
    yield from (way.taken for way in begun.ways)
    if begun.whole is not None:
        yield begun.whole


class MatchStep(OperatorStep):
    """Such an operator at work: its rows are never late behind it."""

    takes_tombstones = False

    def __init__(
        self, declared: OperatorClass, rules: MatchRules, key: Codec[Any], stage: StageContext, guard: Guard
    ) -> None:
        super().__init__(declared, key, stage, guard)
        self._begun = stage.store(f"{rules.name}-begun")
        self._within_ms = rules.pattern.within_ms

    def pending_until_ms(self) -> int:
        """When the time of the last match is up: a timer knows of the first of its key only."""
        return last_due_ms(self._begun, self._within_ms)

    def _pass_on(self, out: RecordBatch) -> None:
        self.forward(at_own_times(out))


def match_node(graph: Graph, parent: Node, rules: MatchRules, on_error: Policy) -> Node:
    """The matches of a pattern in a stream that is in order; added to the graph."""
    chosen, codec = rules, (parent.value or Plain).as_state

    class Declared(Matching):
        rules = chosen
        matcher = Matcher(chosen.pattern)
        begun: MapOf[bytes, Any] = state(codec=begun_codec(chosen.pattern), key_codec=Bytes)
        records: MapOf[bytes, Any] = state(codec=codec, key_codec=Bytes)

    declared = OperatorClass(rules.name, Declared)
    node = operator_node(graph, parent, declared, rules.name, on_error)

    def make(env: Environment) -> Step:
        return MatchStep(declared, rules, parent.key, env.context, env.guard(rules.name, on_error))

    return graph.add(replace(node, kind="match", make=make, value=None))


def begun_codec(pattern: Pattern[Any]) -> Codec[Begun]:
    """How matches that have begun are written.

    The pattern's shape is in the description, as the only value of a field that is never written: the catalog refuses
    a pattern of another shape, whose steps they would not fit.
    """
    shape: Any = Literal[pattern.shape]
    fields = [("pattern", shape, msgspec.field(default=pattern.shape))]
    of_shape = msgspec.defstruct("Begun", fields, bases=(Begun,), array_like=True, omit_defaults=True)
    return cast("Codec[Begun]", MsgPackOf(of_shape))
