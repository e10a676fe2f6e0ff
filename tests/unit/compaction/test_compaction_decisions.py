"""Which decisions of a closed loop are told: a loop that looks every second says little a minute."""

from __future__ import annotations

from dataclasses import replace

from stateflow.compaction.control.decision_log import QUIET_SECONDS, News
from stateflow.compaction.control.watch import Decision

HOLD = Decision(
    at_ms=0,
    action="hold",
    reason="The policy holds.",
    size_bytes=1000,
    records=10.0,
    updates_per_second=1.0,
    live_records=5.0,
    restore_seconds=0.1,
    changes={},
)


def after(seconds: float, decision: Decision = HOLD) -> Decision:
    return replace(decision, at_ms=round(1000 * seconds))


def test_a_look_like_the_one_before_is_told_once_a_minute() -> None:
    news = News()
    told = [seconds for seconds in range(150) if news.is_news("t", after(seconds))]
    assert told == [0, round(QUIET_SECONDS), round(2 * QUIET_SECONDS)]


def test_every_topic_and_every_change_is_told() -> None:
    news, change = News(), replace(HOLD, action="change", changes={"segment.ms": "1000"})
    assert news.is_news("t", HOLD)
    assert news.is_news("u", HOLD)
    assert news.is_news("t", after(1, change))
    assert news.is_news("t", after(2, replace(change, changes={"segment.ms": "2000"})))
    assert news.is_news("t", after(3))
    assert not news.is_news("t", after(4))
    assert not news.is_news("u", after(4))


def test_a_change_that_is_only_planned_is_told_once() -> None:
    """A dry run decides the same again at every look, as nothing is changed."""
    news, planned = News(), replace(HOLD, action="would change", changes={"segment.ms": "1000"})
    assert news.is_news("t", planned)
    assert not news.is_news("t", after(1, planned))
    assert news.is_news("t", after(QUIET_SECONDS, planned))
