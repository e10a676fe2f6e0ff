"""CPU per million records beside that of the last release, whatever machine runs it: a report, not a test.

A band file says what each command took at the release, and how fast the machine was then: the time of a loop that is
always the same. What is measured now is compared at that pace. Machines differ in more than one loop shows, and a
busy one takes up to three times as much for the same work, which the loop does not show: so the loads are told, too,
the band is wide, and being outside of it is a reason to look.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stateflow.errors import ConfigError
from stateflow.lab.bench.result import OURS

WIDTH = 1.3
"""How many times more, or less, is still within the band."""


def read_bands(path: Path) -> dict[str, Any]:
    """What a band file holds. Raises ``ConfigError`` for another file."""
    try:
        bands = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(
            f"{path} is no band file: {error}.", action="Name the file that --update-band wrote."
        ) from error
    if not isinstance(bands, dict) or not isinstance(bands.get("commands"), dict):
        raise ConfigError(
            f"{path} is no band file: it names no commands.", action="Name the file that --update-band wrote."
        )
    return bands


def compared(body: dict[str, Any], bands: dict[str, Any]) -> dict[str, Any]:
    """How a result of this project stands to what a band file holds. Raises ``ConfigError`` where that lacks it."""
    entry = bands["commands"].get(band_key(body))
    if entry is None:
        raise ConfigError(
            f"the band file has no entry for `{band_key(body)}`.",
            action=f"Measure one of {', '.join(bands['commands'])}, or add it with --update-band.",
        )
    slowness = body["machine"]["pace_microseconds"] / entry["pace_microseconds"]
    now = body["cpu_seconds_per_million"][OURS] / slowness
    ratio = now / entry["cpu_seconds_per_million"]
    return {
        "release": bands["release"],
        "at_release": entry["cpu_seconds_per_million"],
        "now_at_its_pace": round(now, 2),
        "machine_slowness": round(slowness, 2),
        "ratio": round(ratio, 2),
        "load_at_release": entry["load_average"],
        "load_now": body["machine"]["load_average"],
        "verdict": "within" if 1 / WIDTH <= ratio <= WIDTH else "dearer" if ratio > 1 else "cheaper",
    }


def updated(body: dict[str, Any], bands: dict[str, Any]) -> dict[str, Any]:
    """What a band file holds, with this result in the place of what it had for the same command."""
    bands["release"] = body["setups"][OURS]["version"]
    bands["commands"][band_key(body)] = {
        "cpu_seconds_per_million": body["cpu_seconds_per_million"][OURS],
        "pace_microseconds": body["machine"]["pace_microseconds"],
        "date": body["date"],
        "load_average": body["machine"]["load_average"],
        "mode": body["mode"],
    }
    return bands


def band_key(body: dict[str, Any]) -> str:
    """The work and its size: peers, rounds and whatever else does not change our cost are no part of it."""
    size = body["workload"]
    records = f"{size['records']} records of {size['value_bytes']} B"
    return f"{body['work']}, {records}, {size['keys']} keys, {size['partitions']} partitions"
