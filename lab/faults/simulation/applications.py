"""The applications that histories happen to. All keep, per key, which operations they have seen, in which order.

``numbers`` is written by hand on the runtime's contracts: one store of plain values. ``ledger`` is an operator class
with a value, a list and a map with a time to live, beside a windowed count. ``minutes`` lists the operations of each
window, sends the list when it closes, and has an eventual changelog.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import NamedTuple

from stateflow.app import App
from stateflow.catalog.model import StoreEntry
from stateflow.changelog.eventual import Eventual
from stateflow.codec import Integer, String
from stateflow.lab.applications.untimed import UntimedPipeline
from stateflow.lab.faults.simulation.history import Application
from stateflow.lab.faults.simulation.traffic import traffic
from stateflow.operators.aggregates.aggregates import Aggregate, fold
from stateflow.operators.classes.operator import Context, Operator
from stateflow.operators.steps.context import StageContext
from stateflow.operators.topology.topology import Input, Stage, Topology
from stateflow.operators.windows.windows import Tumbling
from stateflow.record import RecordBatch
from stateflow.state.declaration import state
from stateflow.state.listof import ListOf
from stateflow.state.mapof import MapOf
from stateflow.state.value import Value

WINDOW_MS = 10_000
TTL_MS = 500_000
CLEAR = "clear"


class Op(NamedTuple):
    """One operation, as it is sent to the source topic."""

    id: int
    key: str
    kind: str

    def encode(self) -> bytes:
        """As text."""
        return f"{self.id} {self.key} {self.kind}".encode()

    @classmethod
    def decode(cls, text: str) -> Op:
        """From text."""
        number, key, kind = text.split(" ")
        return cls(int(number), key, kind)


class Names(NamedTuple):
    """Where an application's data is."""

    app: str
    sources: tuple[str, ...]
    outputs: tuple[str, ...]
    stage: str
    """The stage that keeps state."""
    stores: tuple[str, ...]

    @property
    def source(self) -> str:
        """The first topic that operations are sent to."""
        return self.sources[0]


NAMES: dict[Application, Names] = {
    "numbers": Names("numbers", ("numbers-ops",), ("numbers-out",), "number", ("seen",)),
    "ledger": Names(
        "ledger",
        ("ledger-ops",),
        ("ledger-out", "ledger-windows"),
        "by-key",
        ("book-total", "book-ids", "book-marks", "windows"),
    ),
    "traffic": Names(
        "traffic",
        ("traffic-ops", "traffic-side"),
        ("traffic-out", "traffic-closed", "traffic-updated", "traffic-late"),
        "by-key",
        ("visits-streak", "visits-marks", "visits-timers", "closed", "updated"),
    ),
    "minutes": Names("minutes", ("minutes-ops",), ("minutes-windows",), "by-key", ("windows",)),
}


def topology_of(application: Application, pace: Callable[[], None]) -> Topology:
    """The application's graph; ``pace`` is called for each operation where the application is a slow one."""
    return traffic(pace) if application == "traffic" else _shared(application)


@cache
def _shared(application: Application) -> Topology:
    """A graph is immutable, so all simulations of a process share one."""
    return _numbers() if application == "numbers" else _APPS[application]().topology()


# --- numbers ------------------------------------------------------------------------------------------------


class _Rekey(UntimedPipeline):
    def __init__(self, context: StageContext) -> None:
        self._context = context

    def process(self, batch: RecordBatch) -> None:
        keys = [value.split(b" ")[1] for value in batch.values]
        self._context.rekey_many("by-key", keys, batch.values, batch.timestamps_ms)


class _Number(UntimedPipeline):
    """Keeps the ids of each key's operations, in order, as text; an operation of the kind *clear* deletes them."""

    def __init__(self, context: StageContext) -> None:
        self._context = context

    def process(self, batch: RecordBatch) -> None:
        store = self._context.store("seen")
        results = []
        for key, value in zip(batch.keys, batch.values, strict=True):
            op = Op.decode(value.decode())
            if op.kind == CLEAR:
                store.delete(key)
                results.append(b"%d 0" % op.id)
                continue
            before = store.get(key)
            ids = b"%d" % op.id if before is None else b"%b %d" % (before, op.id)
            store.put(key, ids)
            results.append(b"%d %d" % (op.id, ids.count(b" ") + 1))
        self._context.send_many("numbers-out", batch.keys, results, batch.timestamps_ms)


def _numbers() -> Topology:
    text = {"codec": "string"}
    store = StoreEntry(
        name="seen", stage="number", kind="value", layout="plain", key_codec=text, value_codec=text
    )
    return Topology(
        "numbers",
        (
            Stage("rekey", (Input("numbers-ops"),), (), (), ("by-key",), _Rekey),
            Stage("number", (Input("by-key", "rekey"),), (store,), ("numbers-out",), (), _Number),
        ),
    )


# --- ledger -------------------------------------------------------------------------------------------------


class Book(Operator[str, str, str]):
    """Counts operations, lists their ids, and marks each for a while."""

    total: Value[int] = state(default=0, codec=Integer)
    ids: ListOf[int] = state(codec=Integer)
    marks: MapOf[str, int] = state(ttl=timedelta(milliseconds=TTL_MS), key_codec=String, codec=Integer)

    def on_record(self, value: str, ctx: Context[str]) -> None:
        """Enter one operation."""
        op = Op.decode(value)
        if op.kind == CLEAR:
            self.total.clear()
            self.ids.clear()
            ctx.emit(f"{op.id} 0")
            return
        self.total.set(self.total.get() + 1)
        self.ids.append(op.id)
        self.marks.put(str(op.id), op.id)
        ctx.emit(f"{op.id} {len(self.ids)}")


def _ledger() -> App:
    app = App("ledger")
    ops = app.topic("ledger-ops", value=String)
    out = app.topic("ledger-out", key=String, value=String)
    windows = app.topic("ledger-windows", value=Integer)
    keyed = app.stream(ops).key_by(lambda text: text.split(" ")[1], name="by-key", key=String)
    keyed.process(Book, name="book").to(out)
    closed = keyed.window(Tumbling(timedelta(milliseconds=WINDOW_MS)), emit="on_close").count(name="windows")
    closed.to(windows)
    return app


# --- minutes ------------------------------------------------------------------------------------------------


def _minutes() -> App:
    # Few windows are logged, and the replay is short, so that both get their turn within a history.
    app = App("minutes")
    ops = app.topic("minutes-ops", value=String)
    windows = app.topic("minutes-windows", value=String)
    listed: Aggregate[str, str, str] = fold(
        "", lambda text, op: f"{text} {Op.decode(op).id}".strip(), type=str
    )
    (
        app.stream(ops)
        .key_by(lambda text: text.split(" ")[1], name="by-key", key=String)
        .window(
            Tumbling(timedelta(milliseconds=WINDOW_MS)),
            emit="on_close",
            changelog=Eventual(intensity=0.3, max_replay_records=12),
        )
        .aggregate(listed, name="windows")
        .to(windows)
    )
    return app


_APPS = {"ledger": _ledger, "minutes": _minutes}
