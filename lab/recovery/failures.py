"""The windowed word count loses its worker and its disk: how long until it has caught up, and what that costs before.

Kept in three ways: images and the changelog's tail behind them; the changelog alone; nothing of an open window, which
is computed again from the words between both stages (upstream replay). And in none, where an application of another
name reads the source from its beginning (source replay). The time is from SIGKILL until all tasks run and no more
input waits than did before, while the feed goes on. Every count is then compared with the right one. After SEEP
(SIGMOD 2013).
"""

from __future__ import annotations

import contextlib
import random
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stateflow.errors import StateflowError
from stateflow.lab.linear_road.answers import percentile
from stateflow.lab.recovery.word_site import (
    PARTITIONS,
    WORDS_PER_LINE,
    Counts,
    Keeping,
    Told,
    WordFeed,
    WordSite,
    count_words,
    random_line,
    send_lines,
)
from stateflow.log.base import Cluster, TopicSpec

_LOOK_SECONDS = 0.1
_SETTLED_SECONDS, _AFTER_SECONDS, _TOLD_SECONDS_MAX = 3.0, 2.0, 10.0
_CAUGHT_UP_SECONDS_MAX, _DRAINED_SECONDS_MAX = 180.0, 120.0
_BACKLOG_LINES_AT_ONCE = 20_000

MODES: dict[str, Keeping] = {
    "image + tail": Keeping(image_seconds=5.0),
    "changelog": Keeping(),
    "upstream replay": Keeping(by_upstream=True),
    "source replay": Keeping(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One run: how state is kept, the load, and when the worker is killed."""

    mode: str
    keeping: Keeping
    rate: int
    """Lines a second, of five words each."""
    words: int
    """How many words there are."""
    before_seconds: float

    @property
    def begins_anew(self) -> bool:
        """Whether another application reads everything again."""
        return self.mode == "source replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureResult:
    """What came of it."""

    failure: Failure
    running_seconds: float
    """From the kill until all tasks run again."""
    recovered_seconds: float
    """From the kill until no more input waits than before it."""
    behind_seconds_p95: float
    """Before the kill: how many seconds of the feed were not in the counts that were read, in 95 % of the reads."""
    lines: int
    different: int
    """Words and windows whose newest count is not the right one."""
    behind: tuple[tuple[float, float], ...]
    """Seconds since the kill, negative before it, and how many seconds of the feed were not counted then."""

    def as_dict(self) -> dict[str, Any]:
        """The figures."""
        return {
            "mode": self.failure.mode,
            "image_seconds": self.failure.keeping.image_seconds,
            "lines_per_second": self.failure.rate,
            "words": self.failure.words,
            "running_seconds": round(self.running_seconds, 2),
            "recovered_seconds": round(self.recovered_seconds, 2),
            "behind_seconds_p95": round(self.behind_seconds_p95, 3),
            "lines": self.lines,
            "different": self.different,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """What keeping state costs while nothing fails: a backlog counted as fast as it goes."""

    mode: str
    words: int
    words_per_second: int
    cpu_seconds_per_million: float
    different: int

    def as_dict(self) -> dict[str, Any]:
        """The figures."""
        return asdict(self)


def modes_of(rate: int, words: int, before_seconds: float) -> list[Failure]:
    """The four ways of coming back, under one load."""
    return [
        Failure(mode=mode, keeping=keeping, rate=rate, words=words, before_seconds=before_seconds)
        for mode, keeping in MODES.items()
    ]


def intervals_of(
    seconds: Sequence[float], rates: Sequence[int], words: int, before_seconds: float
) -> list[Failure]:
    """Each interval between images with each rate; killed when the newest image is as old as it becomes, or younger."""
    return [
        Failure(
            mode="image + tail",
            keeping=Keeping(image_seconds=interval),
            rate=rate,
            words=words,
            before_seconds=max(before_seconds, 1.9 * interval),
        )
        for interval in seconds
        for rate in rates
    ]


def run_failure(failure: Failure, cluster: Cluster, brokers: str, place: Path) -> FailureResult:
    """Count, lose the worker and its disk amid the feed, count on, and compare."""
    app = f"words-{uuid.uuid4().hex[:8]}"
    lines = f"{app}-lines"
    cluster.create([TopicSpec(lines, PARTITIONS)])
    site = first = WordSite(cluster, brokers, place, app, lines, failure.keeping)
    feed = WordFeed(cluster, lines, failure.rate, failure.words)
    told = Told(cluster, app, feed.words_sent)
    try:
        site.start()
        site.wait_until_running()
        told.start()
        feed.start()
        usual_lag = _lag_before(site, failure.before_seconds)
        killed = time.monotonic()
        site.lose()
        if failure.begins_anew:
            told.close()
            site = WordSite(cluster, brokers, place, f"{app}-anew", lines, failure.keeping)
            earlier, told = told.behind, Told(cluster, site.app, feed.words_sent)
            told.behind += earlier
            told.start()
        site.start()
        running, recovered = _caught_up(site, usual_lag)
        time.sleep(_AFTER_SECONDS)
        feed.stop()
        _wait_until_drained(site)
        different = _different(told, feed.expected)
    finally:
        if feed.ident:
            feed.stop()
        site.stop()
        first.stop()
        if told.ident:
            told.close()
    words_per_second = failure.rate * WORDS_PER_LINE
    behind = tuple((at - killed, words / words_per_second) for at, words in told.behind)
    return FailureResult(
        failure=failure,
        running_seconds=running - killed,
        recovered_seconds=recovered - killed,
        behind_seconds_p95=percentile(
            [age for at, age in behind if -failure.before_seconds / 2 < at < 0], 95
        ),
        lines=feed.lines,
        different=different,
        behind=behind,
    )


def run_overhead(
    mode: str, keeping: Keeping, lines_count: int, words: int, cluster: Cluster, brokers: str, place: Path
) -> Overhead:
    """Count a backlog, from the first running task to the last commit."""
    app = f"words-{uuid.uuid4().hex[:8]}"
    lines = f"{app}-lines"
    cluster.create([TopicSpec(lines, PARTITIONS)])
    expected: Counts = Counts()
    rng, at_ms = random.Random(6), int(time.time() * 1_000)  # noqa: S311 - data to measure with
    with closing(cluster.writer()) as writer:
        for first in range(0, lines_count, _BACKLOG_LINES_AT_ONCE):
            some = [random_line(rng, words) for _ in range(min(_BACKLOG_LINES_AT_ONCE, lines_count - first))]
            send_lines(writer, lines, some, at_ms, first)
            count_words(expected, some, at_ms)
    site = WordSite(cluster, brokers, place, app, lines, keeping)
    told = Told(cluster, app, lambda: lines_count * WORDS_PER_LINE)
    told.start()
    try:
        site.start()
        site.wait_until_running()
        began, used = time.monotonic(), site.cpu_seconds
        _wait_until_drained(site)
        seconds, used = time.monotonic() - began, site.cpu_seconds - used
        different = _different(told, expected)
    finally:
        site.stop()
        told.close()
    count = lines_count * WORDS_PER_LINE
    return Overhead(
        mode=mode,
        words=words,
        words_per_second=int(count / seconds),
        cpu_seconds_per_million=round(used / count * 1e6, 2),
        different=different,
    )


def _lag_before(site: WordSite, seconds: float) -> int:
    """Let it count for so long; the most that waited in the last seconds of it."""
    until = time.monotonic() + seconds
    most = 0
    while (now := time.monotonic()) < until:
        if now > until - _SETTLED_SECONDS:
            most = max(most, site.lag)
        time.sleep(_LOOK_SECONDS)
    return most


def _caught_up(site: WordSite, usual_lag: int) -> tuple[float, float]:
    """The moments at which all tasks ran, and at which no more waited than usual."""
    site.wait_until_running()
    running = time.monotonic()
    _wait(lambda: site.lag <= usual_lag, _CAUGHT_UP_SECONDS_MAX, "caught up")
    return running, time.monotonic()


def _wait_until_drained(site: WordSite) -> None:
    _wait(lambda: site.is_running and site.lag == 0, _DRAINED_SECONDS_MAX, "counted everything")


def _different(told: Told, expected: Counts) -> int:
    """How many windows are not counted rightly; what was committed last may be read a moment later."""
    with contextlib.suppress(RuntimeError):  # what differs is counted
        _wait(lambda: not told.wrong(expected), _TOLD_SECONDS_MAX, "told everything")
    return told.wrong(expected)


def _wait(condition: Callable[[], bool], seconds_max: float, what: str) -> None:
    deadline = time.monotonic() + seconds_max
    while True:
        try:
            if condition():
                return
        except StateflowError:  # a broker that is busy answers later
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise RuntimeError(f"The worker has not {what} within {seconds_max:.0f} s.")
        time.sleep(_LOOK_SECONDS)
