"""Readings of sensors, slow to look up, counted per sensor and window of 5 seconds.

``SENSORS_APP`` names the application, ``SENSORS_EMIT`` says when windows speak.
"""

from __future__ import annotations

import os
from datetime import timedelta
from time import sleep

import stateflow as sf

NAME = os.environ.get("SENSORS_APP", "sensors")
WINDOW_MS = 5_000

app = sf.App(NAME, guarantee="exactly-once", partitions=1)
readings = app.topic(f"{NAME}-in", key=str, value=str)
windows = app.topic(f"{NAME}-windows", key=sf.WindowedKey(sf.String, WINDOW_MS), value=int)


def looked_up(sensor: str) -> str:
    """What asking another system takes."""
    sleep(0.001)
    return sensor


by_sensor = app.stream(readings).map(looked_up, value=str).key_by(str, name="by-sensor", key=str)
windowed = by_sensor.window(
    sf.Tumbling(timedelta(milliseconds=WINDOW_MS)),
    emit="on_close" if os.environ.get("SENSORS_EMIT") == "on_close" else "on_update",
)
windowed.count(name="per-window").to(windows)
