"""The windowed word count whose failures are studied: a splitter, and a counter of words in windows.

``stateflow run`` starts it by ``stateflow.lab.recovery.word_count:app``; the environment says which application it is
and how its counts are logged, as a process of its own is told.
"""

from __future__ import annotations

import os
from datetime import timedelta

import stateflow as sf

WINDOW_MS = 30_000
_GRACE = timedelta(seconds=10)
"""Partitions are fed in turns, so nothing is late by more than what a feed is behind its clock."""
APP_VARIABLE, LINES_VARIABLE, UPSTREAM_VARIABLE = "WORD_COUNT_APP", "WORD_COUNT_LINES", "WORD_COUNT_UPSTREAM"


def word_count(name: str, lines_topic: str, *, by_upstream: bool) -> sf.App:
    """The application. ``by_upstream`` logs no open window: what is lost is computed again from the words."""
    built = sf.App(name)
    lines = built.topic(lines_topic, value=str)
    told = built.topic(counts_topic(name), key=counts_key(), value=int)
    changelog = sf.Eventual(intensity=0, max_replay_records=1 << 40) if by_upstream else None
    words = built.stream(lines).flat_map(_words).key_by(_itself, name="by-word", key=str)
    windows = sf.Tumbling(timedelta(milliseconds=WINDOW_MS), grace=_GRACE)
    words.window(windows, changelog=changelog).count(name="counts").to(told)
    return built


def counts_topic(app: str) -> str:
    """Where an application tells its counts."""
    return f"{app}-told"


def counts_key() -> sf.WindowedKey[str]:
    """How the key of a count is written."""
    return sf.WindowedKey(sf.String, WINDOW_MS)


def _words(line: str) -> list[str]:
    return line.split()


def _itself(word: str) -> str:
    return word


app = word_count(
    os.environ.get(APP_VARIABLE, "word-count"),
    os.environ.get(LINES_VARIABLE, "lines"),
    by_upstream=UPSTREAM_VARIABLE in os.environ,
)
