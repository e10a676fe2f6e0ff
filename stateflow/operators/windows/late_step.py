"""The records that come too late for a window, as a stream: what the window's aggregates leave out."""

from __future__ import annotations

from stateflow.operators.stateful.stateful import require_routing_key
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.rows import where
from stateflow.operators.steps.step import Environment, Step
from stateflow.operators.topology.graph import Graph, Node
from stateflow.operators.windows.lateness import Lateness
from stateflow.operators.windows.windows import TimeWindow
from stateflow.record import RecordBatch


class LateStep(Step):
    """Passes on what is late and has a key; keeps nothing.

    It is told of event time whenever the aggregates beside it are, so it judges as they do.
    """

    def __init__(self, window: TimeWindow, context: StageContext) -> None:
        super().__init__()
        self._lateness = Lateness(window, context.watermark_ms)

    def process(self, batch: RecordBatch) -> None:
        """Pick rows."""
        late = set(self._lateness.late_rows(batch))
        if late:
            picked = [row in late and key is not None for row, key in enumerate(batch.keys)]
            self.forward(where(batch, picked))

    needs_turns = False

    def advance(self, watermark_ms: int) -> None:
        """Windows up to here are closed."""
        self._lateness.reached_ms = watermark_ms


def late_node(graph: Graph, parent: Node, window: TimeWindow) -> Node:
    """The late records of a window over the parent, with its keys and values."""
    require_routing_key(parent, "late")

    def make(env: Environment) -> Step:
        return LateStep(window, env.context)

    return graph.add(
        Node(
            kind="late",
            name=graph.numbered("late"),
            parents=(parent,),
            make=make,
            key=parent.key,
            value=parent.value,
            keyed=parent.keyed,
        )
    )
