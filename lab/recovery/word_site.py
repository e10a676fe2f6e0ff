"""Where words are counted: a worker process as a user would start it, a feed at a rate, and all it has told."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from stateflow.catalog.control import ControlTopic
from stateflow.lab.endurance.watching import cpu_seconds, family
from stateflow.lab.following import TopicFollower
from stateflow.lab.recovery.word_count import (
    APP_VARIABLE,
    LINES_VARIABLE,
    UPSTREAM_VARIABLE,
    WINDOW_MS,
    counts_key,
    counts_topic,
)
from stateflow.log.base import Cluster, TopicSpec, Writer
from stateflow.record import RecordBatch
from stateflow.runtime.progress.lag import application_lag

PARTITIONS = 2
"""Of the topics of lines and of counts; the words have as many, so there are twice as many tasks."""
WORDS_PER_LINE = 5
_TARGET = "stateflow.lab.recovery.word_count:app"
_RUNNING = "is running from"
_START_SECONDS_MAX, _STOP_SECONDS = 120.0, 60.0
_TICK_SECONDS = 0.05

Counts = Counter[tuple[str, int]]
"""Word and start of the window, ms → how often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """How the counter's state is kept, and so how it comes back."""

    image_seconds: float | None = None
    """Age at which an image is followed by another; None for no images."""
    by_upstream: bool = False
    """Whether nothing of an open window is logged."""


class WordSite:
    """One application of a name of its own, its worker and its topics."""

    def __init__(
        self, cluster: Cluster, brokers: str, place: Path, app: str, lines: str, keeping: Keeping
    ) -> None:
        self.cluster = cluster
        self.app = app
        self.state_dir = place / f"{app}-state"
        self._log = place / f"{app}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._environment = {
            **os.environ,
            "STATEFLOW_BROKERS": brokers,
            APP_VARIABLE: app,
            LINES_VARIABLE: lines,
        }
        if keeping.by_upstream:
            self._environment[UPSTREAM_VARIABLE] = "1"
        if keeping.image_seconds is not None:
            self._environment["STATEFLOW_IMAGES"] = str(place / f"{app}-images")
            self._environment["STATEFLOW_IMAGE_INTERVAL_SECONDS"] = str(keeping.image_seconds)
        cluster.create([TopicSpec(counts_topic(app), PARTITIONS)])

    def start(self, *more: str) -> None:
        """Start the worker. Its name is its own, so the group knows it again at once."""
        arguments = [
            "run",
            _TARGET,
            "--verbose",
            "--name",
            "counter",
            "--state-dir",
            str(self.state_dir),
            *more,
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "stateflow.cli", *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        """Whether all tasks run. Raises ``RuntimeError`` when the worker has ended."""
        assert self._process is not None, "it was started"
        if self._process.poll() is not None:
            raise RuntimeError(f"The worker ended with {self._process.returncode}: {self._said[-2_000:]}")
        return self._said.count(_RUNNING) >= 2 * PARTITIONS

    def wait_until_running(self) -> None:
        """Return when all tasks run. Raises ``RuntimeError`` when they do not."""
        deadline = time.monotonic() + _START_SECONDS_MAX
        while not self.is_running:
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"The tasks did not start within {_START_SECONDS_MAX:.0f} s: {self._said[-2_000:]}"
                )
            time.sleep(_TICK_SECONDS)

    @property
    def lag(self) -> int:
        """Offsets that are in the inputs of both stages and not processed yet."""
        return sum(
            lag.slots for lag in application_lag(self.cluster, ControlTopic(self.cluster, self.app).load())
        )

    @property
    def cpu_seconds(self) -> float:
        """CPU of the worker so far."""
        return sum(map(cpu_seconds, family(self._process.pid))) if self._process is not None else 0.0

    def lose(self) -> None:
        """SIGKILL, and the disk is gone."""
        assert self._process is not None, "it was started"
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self.state_dir)

    def finish(self) -> int:
        """Wait until the worker ends by itself; its exit code."""
        assert self._process is not None, "it was started"
        return self._process.wait()

    def stop(self) -> None:
        """Ask the worker to commit and end; kill it where it does not."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @property
    def _said(self) -> str:
        return self._log.read_text(errors="replace")


class WordFeed(threading.Thread):
    """Sends so many lines a second until it is stopped, and counts what the application has to."""

    def __init__(self, cluster: Cluster, topic: str, rate: int, words: int) -> None:
        super().__init__(name="feed", daemon=True)
        self._cluster = cluster
        self._topic = topic
        self._rate = rate
        self._words = words
        self._stopped = threading.Event()
        self.expected: Counts = Counter()
        self.lines = 0

    def run(self) -> None:
        """Send until ``stop``."""
        rng = random.Random(5)  # noqa: S311 - data to measure with
        began = time.monotonic()
        with closing(self._cluster.writer()) as writer:
            while not self._stopped.wait(_TICK_SECONDS):
                due = int((time.monotonic() - began) * self._rate) - self.lines
                self._send(
                    writer, [random_line(rng, self._words) for _ in range(due)], int(time.time() * 1_000)
                )

    def _send(self, writer: Writer, lines: list[str], at_ms: int) -> None:
        send_lines(writer, self._topic, lines, at_ms, self.lines)
        self.lines += len(lines)
        count_words(self.expected, lines, at_ms)

    def words_sent(self) -> int:
        """How many words were sent so far."""
        return self.lines * WORDS_PER_LINE

    def stop(self) -> None:
        """All that was sent is in the log on return."""
        self._stopped.set()
        self.join()


def random_line(rng: random.Random, words: int) -> str:
    """A line of words, each as likely as any other."""
    return " ".join(f"word-{rng.randrange(words)}" for _ in range(WORDS_PER_LINE))


def send_lines(writer: Writer, topic: str, lines: list[str], at_ms: int, first: int) -> None:
    """Send lines to the partitions by turns; ``first`` is the number of the first one."""
    writer.send_many(
        topic,
        [None] * len(lines),
        [line.encode() for line in lines],
        partitions=[(first + number) % PARTITIONS for number in range(len(lines))],
        timestamps_ms=[at_ms] * len(lines),
    )
    writer.flush()


def count_words(counts: Counts, lines: list[str], at_ms: int) -> None:
    """What an application has to count of lines of one moment."""
    start_ms = at_ms - at_ms % WINDOW_MS
    counts.update((word, start_ms) for line in lines for word in line.split())


class Told(TopicFollower):
    """Reads the committed counts as they come: the newest of each window, and how far they are behind the feed."""

    def __init__(self, cluster: Cluster, app: str, sent: Callable[[], int]) -> None:
        super().__init__(cluster, counts_topic(app), PARTITIONS)
        self._sent = sent
        """How many words the application was given so far."""
        self._newest: Counts = Counter()
        self._words = 0
        """What the newest counts come to."""
        self._lock = threading.Lock()
        self.behind: list[tuple[float, int]] = []
        """Of each read: the moment on the monotonic clock, and how many words were sent that are not counted yet."""

    def take(self, batch: RecordBatch) -> None:
        """Keep the newest of each window, and note how far they are behind."""
        with self._lock:
            for key, value in zip(batch.keys, batch.values, strict=True):
                told, count = counts_key().decode(key or b""), int.from_bytes(value or b"", "big")
                self._words += count - self._newest[told.key, told.start_ms]
                self._newest[told.key, told.start_ms] = count
        self.behind.append((time.monotonic(), self._sent() - self._words))

    def wrong(self, expected: Counts) -> int:
        """How many windows have another count than they should have so far."""
        with self._lock:
            keys = self._newest.keys() | expected.keys()
            return sum(self._newest[key] != expected[key] for key in keys)
