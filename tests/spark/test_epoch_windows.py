"""Windows that tell at intervals, in micro-batches: each is told at its ticks, whatever the epochs are."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import stateflow as sf
from stateflow.operators.steps import timers as timing
from tests.spark.test_epoch_timers import Query

SIZE_MS = 60_000


def minutes() -> sf.App:
    app = sf.App("sessions")
    clicks, ends = (
        app.topic("clicks", value=str),
        app.topic("ends", key=sf.WindowedKey(sf.String, SIZE_MS), value=str),
    )
    keyed = app.stream(clicks).key_by(lambda click: click, name="by-k", key=str)
    window = sf.Tumbling(timedelta(milliseconds=SIZE_MS))
    counts = keyed.window(window, emit=sf.Every(timedelta(seconds=10))).count(name="n")
    counts.map(str, value=str).to(ends)
    return app


def told(query: Query, key: str) -> list[str]:
    return [value.decode() for name, value in query.ends() if name.startswith(key.encode())]


@pytest.mark.parametrize("per_turn", [1, 2_000])
def test_they_are_told_once_per_tick_and_when_they_close(
    tmp_path: Path, per_turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "WINDOWS_PER_TURN", per_turn)
    monkeypatch.setattr(timing, "WINDOWS_PER_CHUNK", 1)
    query = Query(tmp_path, minutes())
    query.click("a", "a", "b", second=1)
    query.micro_batches()
    assert query.ends() == []
    query.click("a", second=5)
    query.click("other", second=12)
    query.micro_batches()
    assert (told(query, "a"), told(query, "b")) == (["3"], ["1"])
    query.click("a", second=13)
    query.click("a", second=14)
    query.micro_batches()
    assert told(query, "a") == ["3"]
    query.click("other", second=62)
    query.micro_batches()
    assert told(query, "a") == ["3", "5"]
    query.click("a", second=61)
    query.end_input()
    query.micro_batches()
    assert sorted(told(query, "a")) == ["1", "3", "5"]
    assert told(query, "b") == ["1"], "it has not changed since"
    assert sorted(told(query, "other")) == ["1", "1"]
