"""A type checker infers what windows tell, however they emit, and refuses ways of emitting that there are not."""

from __future__ import annotations

SCRIPT = """
from datetime import timedelta

import stateflow as sf

second = timedelta(seconds=1)
app = sf.App("x")
amounts = app.stream(app.topic("amounts", key=str, value=int)).key_by(str, name="by", key=str)
minute = sf.Tumbling(timedelta(minutes=1))
reveal_type(amounts.window(minute, emit="on_close").count(name="w1"))
reveal_type(amounts.window(minute, emit=sf.Every(second)).count(name="w2"))
reveal_type(amounts.window(sf.Session(second), emit=sf.TimeLimit(second, max_records=9)).reduce(max, name="w3"))
reveal_type(amounts.window(sf.Hopping(second, second), emit=sf.OnClose(max_bytes=9)).mean(name="w4"))
reveal_type(amounts.window(sf.CountWindow(3), emit=sf.Every(second)).count(name="w5"))
reveal_type(amounts.window(sf.Sliding(second), emit=sf.Every(second)).late())
reveal_type(amounts.suppress(sf.TimeLimit(second, max_bytes=9, when_full="fail"), name="w6"))
reveal_type(app.topic("sessions", key=sf.SessionKey(sf.String), value=int))
reveal_type(app.topic("minutes", key=sf.WindowedKey(sf.String, 60_000), value=int))
reveal_type(app.topic("tens", key=sf.CountedKey(sf.String, 10), value=int))

amounts.window(minute, emit=second)  # an interval says of which time it is
amounts.window(minute, emit="at_intervals")  # no such word
amounts.window(minute, emit=sf.Every(5))  # no duration
sf.TimeLimit(second, when_full="stop")  # no such word
sf.OnClose(max_records=5, when_full="emit")  # nothing final is told early
amounts.suppress(sf.OnClose(max_records=5), name="k1")  # no window closes
"""
STREAM = "stateflow.operators.dsl.stream.Stream"
TOPIC = "stateflow.operators.topics.topic_options.Topic"
WINDOWED = "tuple[str, int, int, fallback=stateflow.codec.windowed.Windowed[str]]"
COUNTED = "tuple[str, int, int, fallback=stateflow.codec.windowed.Counted[str]]"
REVEALED = (
    f"{STREAM}[{WINDOWED}, int]",
    f"{STREAM}[{WINDOWED}, int]",
    f"{STREAM}[{WINDOWED}, int]",
    f"{STREAM}[{WINDOWED}, float | None]",
    f"{STREAM}[{COUNTED}, int]",
    f"{STREAM}[str, int]",
    f"{STREAM}[str, int]",
    f"{TOPIC}[{WINDOWED}, int]",
    f"{TOPIC}[{WINDOWED}, int]",
    f"{TOPIC}[{COUNTED}, int]",
)
MISUSES = 6
