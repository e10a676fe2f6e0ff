"""How many neighbours each vertex has."""

from __future__ import annotations

from stateflow.graphs.edges import Changed
from stateflow.operators.classes.operator import Context, Operator
from stateflow.state.declaration import state
from stateflow.state.setof import SetOf
from stateflow.state.value import Value


class Degrees(Operator[str, Changed, int]):
    """Says a vertex's degree with each change of it."""

    neighbours: SetOf[str] = state()
    degree: Value[int] = state(default=0)

    def on_record(self, value: Changed, ctx: Context[int]) -> None:
        """An edge came or went; one that is told twice counts once."""
        turn = self.neighbours.add if value.is_added else self.neighbours.discard
        if turn(value.other):
            degree = self.degree.get() + (1 if value.is_added else -1)
            if degree:
                self.degree.set(degree)
            else:
                self.degree.clear()
            ctx.emit(degree)
