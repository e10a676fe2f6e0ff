"""Times in, in ms since 1970; a count per minute out. ``MINUTES_APP`` is the application's id."""

from __future__ import annotations

import os
from datetime import timedelta

import stateflow as sf

ID = os.environ["MINUTES_APP"]

app = sf.App(ID, partitions=1)
times = app.topic(
    f"{ID}-in",
    key=str,
    value=sf.Integer,
    partitions=1,
    timestamp=lambda when_ms: when_ms,
    max_ahead=timedelta(hours=1),
)
counts = app.topic(f"{ID}-out", key=sf.WindowedKey(sf.String, 60_000), value=int, partitions=1)
late = app.topic(f"{ID}-late", key=str, value=sf.Integer, partitions=1)
minutes = (
    app.stream(times, late=sf.DeadLetter(f"{ID}-dead"))
    .key_by(lambda _: "k", name="by-key", key=str)
    .window(sf.Tumbling(timedelta(minutes=1)))
)
minutes.count(name="per-minute").to(counts)
minutes.late().to(late)
