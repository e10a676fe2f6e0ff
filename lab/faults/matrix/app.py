"""The application that the crash matrix runs, as a user would write and run it.

Each input record is one operation, ``key producer number``. Per key it keeps how many operations there were with a
hash that tells their order, and the last number of each producer: two stores. Each output carries the operation and
the count it led to. ``FAULTS_APP`` is the application's id; everything else comes from settings.
"""

from __future__ import annotations

import os

import stateflow as sf
from stateflow.lab.faults.matrix.operations import Operation, Tally

ID = os.environ["FAULTS_APP"]


class Ledger(sf.Operator[str, str, str]):
    """Books every operation once."""

    tally: sf.Value[list[int] | None] = sf.state()
    last: sf.MapOf[str, int] = sf.state()

    def on_record(self, value: str, ctx: sf.Context[str]) -> None:
        """Count, hash, note, tell."""
        operation = Operation.parse(value)
        tally = Tally(*(self.tally.get() or (0, 0))).after(operation)
        self.tally.set(list(tally))
        self.last.put(operation.producer, operation.number)
        ctx.emit(f"{value} {tally.total}")


app = sf.App(ID, partitions=2)
operations = app.topic(f"{ID}-in", value=sf.String)
booked = app.topic(f"{ID}-out", key=sf.String, value=sf.String)
keyed = app.stream(operations).key_by(lambda text: Operation.parse(text).key, name="by-key", key=sf.String)
app.operator("ledger", source=keyed, sink=booked)(Ledger)
