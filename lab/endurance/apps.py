"""The applications of the study, as a user would write and run them; the environment says which one, and its name.

Each input record is a text ``key number``. Everything that is not said here is a default.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta

import stateflow as sf
from stateflow.lab.endurance.cases import LATER

ID = os.environ["ENDURANCE_APP"]
KIND = os.environ["ENDURANCE_KIND"]
PARTITIONS = int(os.environ["ENDURANCE_PARTITIONS"])
SLOW_SECONDS = float(os.environ.get("ENDURANCE_SLOW_SECONDS", "0"))
MINUTE = timedelta(minutes=1)


def key_of(text: str) -> str:
    """The key that a record names."""
    return text.split()[0]


class Count(sf.Operator[str, str, str]):
    """Counts each key's records, as slowly as it is told to: a call to another service, for example."""

    total: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: str, ctx: sf.Context[str]) -> None:
        """Wait, count, tell."""
        if SLOW_SECONDS:
            time.sleep(SLOW_SECONDS)
        self.total.set(self.total.get() + 1)
        ctx.emit(f"{value} {self.total.get()}")


class Remind(sf.Operator[str, str, str]):
    """Sets one timer per record, all of them for the same key and minute."""

    fired: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: str, ctx: sf.Context[str]) -> None:
        """Set the timer that the record asks for."""
        number = value.split()[1]
        if number != LATER:
            ctx.timer(number, after=MINUTE)

    def on_timer(self, name: str, ctx: sf.Context[str]) -> None:
        """Tell which one it was."""
        self.fired.set(self.fired.get() + 1)
        ctx.emit(f"{ctx.key} {name}")


app = sf.App(ID, partitions=PARTITIONS)
source = app.topic(f"{ID}-in", value=sf.String)
results = app.topic(f"{ID}-out", key=sf.String, value=sf.String)
keyed = app.stream(source).key_by(key_of, name="by-key", key=sf.String)


def _counts() -> None:
    app.operator("count", source=keyed, sink=results)(Count)


def _timers() -> None:
    app.operator("remind", source=keyed, sink=results)(Remind)


def _windows() -> None:
    windows = keyed.window(sf.Tumbling(MINUTE), emit="on_close")
    windows.count(name="per-minute").map(str).to(results)


KINDS: dict[str, Callable[[], None]] = {"counts": _counts, "timers": _timers, "windows": _windows}
KINDS[KIND]()
