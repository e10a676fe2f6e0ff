"""The application whose histories are about event time: two topics merged, one of them often silent, and everything
that looks at time behind a re-key step.

Windows with grace list the operations of a key, once on close and once on update; late ones go to a dead-letter topic.
An operator counts a streak, which ends when nothing came for a while (a value with a time to live), and sets a timer
per operation, which looks for a mark that must still be there when the timer is due.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from stateflow.app import App
from stateflow.codec import Integer, String
from stateflow.operators.aggregates.aggregates import Aggregate, fold
from stateflow.operators.classes.operator import Context, Operator
from stateflow.operators.steps.error_policy import DeadLetter
from stateflow.operators.topology.topology import Topology
from stateflow.operators.windows.windows import Tumbling
from stateflow.state.declaration import state
from stateflow.state.mapof import MapOf
from stateflow.state.value import Value

WINDOW_MS = 10_000
GRACE_MS = 5_000
DUE_MS = 30_000
"""So long after an operation its timer is due."""
MARK_MS = 90_000
"""So long lives its mark."""
STREAK_MS = 20_000


def op_id(text: str) -> int:
    """The id of an operation as it is sent."""
    return int(text.split(" ", 1)[0])


class Visits(Operator[str, str, str]):
    """Answers each operation with the streak that it continues, and once more when its timer is due."""

    streak: Value[int] = state(default=0, codec=Integer, ttl=timedelta(milliseconds=STREAK_MS))
    marks: MapOf[str, int] = state(ttl=timedelta(milliseconds=MARK_MS), key_codec=String, codec=Integer)

    def on_record(self, value: str, ctx: Context[str]) -> None:
        """Enter one operation."""
        number = op_id(value)
        length = self.streak.get() + 1
        self.streak.set(length)
        self.marks.put(str(number), number)
        ctx.timer(str(number), after=timedelta(milliseconds=DUE_MS))
        ctx.emit(f"{number} streak {length}")

    def on_timer(self, name: str, ctx: Context[str]) -> None:
        """Say whether the operation's mark is there."""
        ctx.emit(f"{name} due {'there' if self.marks.get(name) is not None else 'gone'}")


def traffic(pace: Callable[[], None]) -> Topology:
    """The application; ``pace`` is called for each operation that enters it, as a slow look-up would be."""
    app = App("traffic")
    ops = app.topic("traffic-ops", value=String)
    side = app.topic("traffic-side", value=String)
    out = app.topic("traffic-out", key=String, value=String)
    closed = app.topic("traffic-closed", value=String)
    updated = app.topic("traffic-updated", value=String)
    listed: Aggregate[str, str, str] = fold("", lambda text, op: f"{text} {op_id(op)}".strip(), type=str)
    window = Tumbling(timedelta(milliseconds=WINDOW_MS), grace=timedelta(milliseconds=GRACE_MS))

    def at_pace(text: str) -> str:
        pace()
        return text

    keyed = (
        app.stream(ops)
        .merge(app.stream(side))
        .map(at_pace, value=String)
        .key_by(lambda text: text.split(" ")[1], name="by-key", key=String)
    )
    keyed.process(Visits, name="visits").to(out)
    late = DeadLetter("traffic-late")
    keyed.window(window, emit="on_close", late=late).aggregate(listed, name="closed").to(closed)
    keyed.window(window, emit="on_update").aggregate(listed, name="updated").to(updated)
    return app.topology()
