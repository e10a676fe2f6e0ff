"""Connected components, kept up to date by vertices that tell their neighbours what they know.

Each vertex knows an *epoch* and a *label*. Better is a higher epoch and, of one epoch, a smaller label. A vertex begins
with its own name as its label. It tells its neighbours whenever it has come to know better, takes over what is better
than its own (of a new epoch its own name is a label, too), and answers what is worse. So in one epoch the smallest name
spreads through a component.

An edge that is gone may have split one, and names on its far side must be forgotten: both its ends begin an epoch of
their own, higher than any in which something came over that edge. It spreads through what is left on each side, and in
the highest epoch of a component all labels are names in it. What comes from a vertex that is no neighbour is passed
over: it was on its way when the edge went, or the edge has not come here yet, and then it is told again.

Epochs only rise, and in one epoch labels only fall, so telling ends once edges do not change any more; what arrives
late, twice or in another order makes no difference.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from stateflow.graphs.edges import Changed
from stateflow.operators.classes.operator import Context, Operator
from stateflow.state.declaration import state
from stateflow.state.setof import SetOf
from stateflow.state.value import Value

_FORGET = "forget"


class Told(msgspec.Struct, array_like=True, frozen=True):
    """What a vertex tells a neighbour."""

    to: str
    sender: str
    epoch: int
    label: str


class Label(msgspec.Struct, array_like=True, frozen=True):
    """What is passed on of a vertex: the name of its component as far as it knows."""

    label: str


Out = Told | Label


class Known(msgspec.Struct, array_like=True, frozen=True):
    """What a vertex knows."""

    epoch: int
    label: str

    def is_better_than(self, other: Known) -> bool:
        """Whether a vertex that knows the other should be told."""
        return self.epoch > other.epoch or (self.epoch == other.epoch and self.label < other.label)


class Components(Operator[str, object, Out]):
    """A vertex and its component."""

    neighbours: SetOf[str] = state()
    known: Value[Known | None] = state()

    def on_change(self, change: Changed, ctx: Context[Out]) -> None:
        """An edge of the vertex came or went."""
        if change.is_added:
            if self.neighbours.add(change.other):
                self._tell([change.other], self._own(ctx), ctx)
        elif self.neighbours.discard(change.other):
            self._learn(Known(self._own(ctx).epoch + 1, change.vertex), ctx)
            self._alone(ctx)

    def on_told(self, told: Told, ctx: Context[Out]) -> None:
        """A neighbour says what it knows."""
        if told.sender not in self.neighbours:
            return
        own, theirs = self._own(ctx), Known(told.epoch, told.label)
        if theirs.is_better_than(own):
            label = min(theirs.label, told.to) if theirs.epoch > own.epoch else theirs.label
            self._learn(Known(theirs.epoch, label), ctx)
        elif own.is_better_than(theirs):
            self._tell([told.sender], own, ctx)

    def _own(self, ctx: Context[Out]) -> Known:
        known = self.known.get()
        if known is None:
            known = Known(0, ctx.key)
            self.known.set(known)
            ctx.emit(Label(known.label))
        return known

    def _learn(self, known: Known, ctx: Context[Out]) -> None:
        before = self._own(ctx)
        self.known.set(known)
        if known.label != before.label:
            ctx.emit(Label(known.label))
        self._tell(list(self.neighbours), known, ctx)

    def _tell(self, neighbours: list[str], known: Known, ctx: Context[Out]) -> None:
        for each in neighbours:
            ctx.emit(Told(each, ctx.key, known.epoch, known.label))

    def _alone(self, ctx: Context[Out]) -> None:
        """It may have no neighbours any more; it is remembered all the same."""


class ForgettingComponents(Components):
    """Forgets a vertex that has had no edges for a while; subclasses declare how long.

    Until then its epoch is kept, so that nothing that is still on its way to it can be mistaken for news.
    """

    keep: timedelta

    def on_timer(self, name: str, ctx: Context[Out]) -> None:  # noqa: ARG002 - it has but one
        """Forget it, if it is still alone."""
        if next(iter(self.neighbours), None) is None:
            self.known.clear()

    def _alone(self, ctx: Context[Out]) -> None:
        ctx.timer(_FORGET, after=self.keep)


def components_operator(within: timedelta | None) -> type[Components]:
    """The operator for edges that are there for so long; None: until they are removed."""
    if within is None:
        return Components

    chosen: timedelta = within

    class Declared(ForgettingComponents):
        keep = chosen

    return Declared
