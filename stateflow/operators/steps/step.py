"""The running form of a step: takes batches, gives batches to the steps behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any

from stateflow.changelog.event_time import UNKNOWN_MS
from stateflow.codec.base import Codec
from stateflow.codec.table import is_known
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.error_policy import Policy
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.origin import Origin
from stateflow.operators.steps.reads import Reads, all_of
from stateflow.record import RecordBatch

ANY_TIME_MS = (1 << 63) - 1
"""No event time is as late as this."""


class Step:
    """Keys in a batch are bytes throughout a stage, values are objects; a batch is never changed in place."""

    takes_tombstones = False
    """Whether records of a source topic without a value reach this step; a function of the value is not given them."""

    takes_failed = False
    """Whether the step is given rows whose results failed (``failed_results.py``)."""

    def __init__(self) -> None:
        self.children: list[Step] = []

    def process(self, batch: RecordBatch) -> None:
        """Work on some rows, at least one."""
        self.forward(batch)

    def advance(self, watermark_ms: int) -> bool | None:
        """Time may have moved on; the steps before this one have been told already. True when more is due."""

    def own_codecs(self) -> Iterable[Codec[Any]]:
        """What the step encodes and decodes with."""
        return ()

    @property
    def calls_application(self) -> bool:
        """True where code of the application may be called for a record, and so take any time.

        Names of fields and column expressions are none: they say what they read. A codec of the application is. A step
        that does not say what it reads counts as one that may.
        """
        return self.own_reads() is None or not all(map(is_known, self.own_codecs()))

    @property
    def needs_turns(self) -> bool:
        """True where ``advance`` may have something to do though event time has not moved and it left nothing.

        By the clock, say, or by deleting a little more in each turn what has expired.
        """
        return type(self).advance is not Step.advance

    @property
    def is_timed(self) -> bool:
        """True for a step that keeps something until event time has come for it."""
        return False

    def pending_until_ms(self) -> int:
        """Of a timed step: the event time by which all that it keeps will be due; ``UNKNOWN_MS`` for nothing.

        May look at all of its state: asked once, when the input has ended.
        """
        return UNKNOWN_MS

    def one_piece_until_ms(self) -> int:
        """Event time up to which rows may carry this step in one piece; further, timers fire in turns before them."""
        return ANY_TIME_MS

    def first_due_ms(self) -> int:
        """Event time before which certainly nothing that rows may make due falls due."""
        return ANY_TIME_MS

    def event_times_ms(self, batch: RecordBatch) -> Sequence[int]:
        """Of a step that raw records enter by: how far each carries event time by itself, −1 for one that does not.

        Changes nothing: asked before ``process``.
        """
        return batch.timestamps_ms

    def own_reads(self) -> Reads | None:
        """What the step itself reads of a value; None where that may be anything."""
        return None

    def reads(self, codec: Codec[Any]) -> Reads | None:  # noqa: ARG002 - a step that passes values on asks
        """What this step and those behind it that are given the same values read of them, with such a codec."""
        return self.own_reads()

    def reads_behind(self, codec: Codec[Any]) -> list[Reads | None]:
        """What each step behind this one reads."""
        return [child.reads(codec) for child in self.children]

    def forward(self, batch: RecordBatch) -> None:
        """Hand rows to every step behind this one."""
        if len(batch):
            for child in self.children:
                child.process(batch)


class PassStep(Step):
    """Passes on the values that reach it, all or some of them; a subclass says what it reads itself."""

    def own_reads(self) -> Reads | None:
        """Nothing."""
        return Reads()

    def reads(self, codec: Codec[Any]) -> Reads | None:
        """With what those behind it read."""
        return all_of([self.own_reads(), *self.reads_behind(codec)])


class PortedStep(Step):
    """A step with several inputs, each of which a ``PortStep`` stands before."""

    def process_from(self, handler: str, batch: RecordBatch) -> None:
        """Work on rows of one input, at least one, which is known by the name of its handler."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Environment:
    """What a step is built in: the task it runs in."""

    context: StageContext
    origin: Origin
    tell_origin: Set[str] = frozenset()
    """The re-key steps whose records tell where they began: a later stage may send them to a dead-letter topic."""

    def guard(self, step: str, policy: Policy) -> Guard:
        """The policy of one step, at work in this task."""
        return Guard(self.context, self.origin, step, policy)


MakeStep = Callable[[Environment], Step]
