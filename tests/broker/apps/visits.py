"""Counts visits per key until a key has been silent for a while by the clock, and says so once.

``VISITS_APP`` is the application's id, ``VISITS_VERSION`` the version of its state.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import stateflow as sf

ID = os.environ["VISITS_APP"]
SILENCE = timedelta(seconds=4)


@dataclass
class Visits:
    times: int
    last: str = ""


class Counting(sf.Operator[str, str, Any]):
    seen: sf.Value[int] = sf.state(default=0)
    ended: sf.Value[int] = sf.state(default=0)
    pages: sf.MapOf[str, int] = sf.state(ttl_per_write=True)

    def on_record(self, value: str, ctx: sf.Context[Any]) -> None:
        self.seen.set(self.seen.get() + 1)
        self.pages.put("short", 1, ttl=timedelta(seconds=1))
        self.pages.put("long", 1)
        ctx.timer("silent", after=SILENCE, time="processing")

    def on_timer(self, name: str, ctx: sf.Context[Any]) -> None:
        self.ended.set(self.ended.get() + 1)
        ctx.emit([name, self.seen.get(), self.ended.get()])


class Telling(sf.Operator[str, str, Any]):
    seen: sf.Value[Visits] = sf.state(
        default=Visits(0), version=2, migrations={1: lambda times: {"times": times}}
    )
    ended: sf.Value[int] = sf.state(default=0)
    pages: sf.MapOf[str, int] = sf.state(ttl_per_write=True)

    def on_record(self, value: str, ctx: sf.Context[Any]) -> None:
        self.seen.set(Visits(self.seen.get().times + 1, value))

    def on_timer(self, name: str, ctx: sf.Context[Any]) -> None:
        """No timer is set any more."""


app = sf.App(ID, partitions=2)
visits = app.topic(f"{ID}-in", value=str, partitions=1)
ends = app.topic(f"{ID}-out", key=str, value=sf.Json, partitions=1)
operator = Counting if os.environ.get("VISITS_VERSION", "1") == "1" else Telling
app.operator("visits", source=visits, key=lambda line: line.split()[0], sink=ends)(operator)
