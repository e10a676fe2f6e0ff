"""How tests are shared by several processes: whole files, what takes long first, and a Spark session in one process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

SPARK_FOLDER = "tests/spark/"
SPARK_OF_THEIR_OWN = ("test_demo.py", "test_killed_jdbc_drivers.py", "test_standalone_cluster.py")
"""Files there whose tests start Spark in processes of their own: they have no use for the session of the others."""
BROKER_SETTINGS = "tests/broker/test_compaction_"
"""Tests of the tuner, which set and read what holds for the whole broker."""


def sort_long_first(items: list[pytest.Item]) -> None:
    """Order the files: Spark, then those with a broker and slow ones by turns, then the others.

    Slow ones keep the cores busy while those with a broker wait. Within a kind, files with tests of which a
    longer timeout says that they take long come first, then those with many tests.
    """
    files: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[file_of(item.nodeid)].append(item)
    kinds: dict[str, list[str]] = defaultdict(list)
    for file in sorted(files, key=lambda file: (-_timeout_max(files[file]), -len(files[file]), file)):
        kinds[_kind(files[file])].append(file)
    order = [*kinds["spark"], *_by_turns(kinds["broker"], kinds["slow"]), *kinds["other"]]
    items[:] = [item for file in order for item in files[file]]


def unit_of(nodeid: str) -> str:
    """What a test goes together with: its file, or all others that may not run at the same time.

    One Spark session is enough for a machine; and the broker that all share has one set of settings.
    """
    if nodeid.startswith(SPARK_FOLDER) and Path(file_of(nodeid)).name in SPARK_OF_THEIR_OWN:
        return file_of(nodeid)
    alone = (beginning for beginning in (SPARK_FOLDER, BROKER_SETTINGS) if nodeid.startswith(beginning))
    return next(alone, file_of(nodeid))


def file_of(nodeid: str) -> str:
    """The file that a test is in."""
    return nodeid.split("::", 1)[0]


def _kind(items: Sequence[pytest.Item]) -> str:
    marks = {mark.name for item in items for mark in item.iter_markers()}
    return next((kind for kind in ("spark", "broker", "slow") if kind in marks), "other")


def _timeout_max(items: Sequence[pytest.Item]) -> float:
    given = [mark.args[0] for item in items for mark in item.iter_markers("timeout") if mark.args]
    return max(given, default=0.0)


def _by_turns(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """Both mixed evenly, however many each has."""
    places = [(number / len(part), file) for part in (one, other) for number, file in enumerate(part)]
    return [file for _, file in sorted(places)]
