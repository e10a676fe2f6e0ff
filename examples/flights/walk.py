"""The steps of the demo, each told in a sentence with what it measured. ``demo.py`` runs them in order."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import feed
import oracle
import page
import results
from placement import placements
from report import Report, Step, TopicBytes
from shell import Background, CommandFailed, Failing, Shell
from tuning import changelog_sizes, tune
from workers import all_work, running_tasks, worker_pids

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog
from stateflow.catalog.names import changelog_topic
from stateflow.log.kafka import connect
from stateflow.record import OffsetRange, TopicPartition
from stateflow.runtime.progress.lag import application_lag, is_drained

APP = "examples/flights/app.py:app"
APP_ID = "flights"
WORKERS = 2
VICTIM = "w1"
FIRST_SHARE = 0.55
KILL_SHARE = 0.4
FEED_PER_SECOND, FEED_SECONDS_MIN = 10_000, 8.0
PARTITIONS_AFTER = 6
WAIT_SECONDS = 240.0
# Results carry event time: retention by time would delete what happened in 2013 as soon as it is written.
OUTPUT_CONFIG = {"cleanup.policy": "compact", "segment.ms": feed.TOPIC_CONFIG["segment.ms"]}


class Walk:
    """One run. Every step adds to the report what it did and measured."""

    def __init__(
        self, shell: Shell, brokers: str, state: Path, records: Sequence[feed.Departure], report: Report
    ) -> None:
        self._shell = shell
        self._brokers = brokers
        self._state = state
        self._first = records[: round(len(records) * FIRST_SHARE)]
        self._rest = records[len(self._first) :]
        self._report = report
        self._cluster = connect(brokers)
        self._stopping = threading.Event()
        self._updates_per_second: dict[str, float] = {}

    def close(self) -> None:
        """Stop feeding and release the connection."""
        self._stopping.set()
        self._cluster.close()

    @contextmanager
    def _step(self, title: str) -> Iterator[Step]:
        step = Step(title)
        self._report.steps.append(step)
        print(f"\n{len(self._report.steps)}. {title}", flush=True)
        started = time.monotonic()
        try:
            yield step
        finally:
            step.seconds = time.monotonic() - started
            step.commands, self._shell.commands = self._shell.commands, []
        print(f"  {step.sentence} ({step.seconds:.1f} s)", flush=True)

    # --- steps ------------------------------------------------------------------------------------------

    def create_topics(self) -> None:
        """The source topic by the producer, the output topics by the application's plan."""
        with self._step("Create the topics") as step:
            feed.create_topic(self._brokers)
            self._shell.run("topics", "apply", APP)
            outputs = [name for name in self._cluster.list_topics() if name != feed.TOPIC]
            for name in outputs:
                self._cluster.alter_topic_config(name, OUTPUT_CONFIG)
            step.sentence = (
                f"The producer made its topic {feed.TOPIC} with {feed.PARTITIONS} partitions, "
                f"the application's plan {', '.join(outputs)}, compacted so that the newest result of a key stays."
            )

    def first_part(self) -> None:
        """Feed the first part to two workers; kill one in the middle and erase its disk."""
        with self._step(f"Feed the first flights to {WORKERS} workers, kill one, erase its disk") as step:
            run = self._run("workers-1")
            ready_seconds = run.wait_until(
                lambda: all_work(run.text(), WORKERS), "a start of all", WAIT_SECONDS
            )
            started = time.monotonic()
            feeding = self._feeding(self._first)
            run.wait_until(self._is_in_the_middle, "the middle of the work", WAIT_SECONDS)
            committed = self._committed()
            lost, back_seconds = self._kill_and_wait(run)
            feeding.finish()
            self._wait_drained(run)
            seconds = time.monotonic() - started
            self._report.records = self._committed()
            self._updates_per_second = {
                topic: max(1.0, sum(log.slots for log in logs) / seconds)
                for topic, logs in self._changelog_ranges().items()
            }
            run.stop()
            step.numbers = [
                ("until both workers shared the tasks", f"{ready_seconds:.1f} s"),
                ("flights", f"{len(self._first):,}"),
                ("flights per second, the crash included", f"{len(self._first) / seconds:,.0f}"),
                ("committed when the worker was killed", f"{committed:,}"),
                ("tasks lost with their disk", f"{len(lost)}"),
                ("until all of them ran again", f"{back_seconds:.1f} s"),
            ]
            step.sentence = (
                f"{len(self._first):,} flights were processed. After {committed:,} of them worker {VICTIM} was killed "
                f"with SIGKILL and the state of its {len(lost)} tasks deleted; its successor restored them from the "
                f"changelogs and all ran again after {back_seconds:.1f} s."
            )

    def restore(self) -> None:
        """Lose the whole machine; see the plan, then restore everything with the bar."""
        with self._step("Lose every disk, restore from the changelogs") as step:
            shutil.rmtree(self._state)
            self._shell.run("restore", APP, "--to", str(self._state), "--dry-run")
            (found,) = self._shell.json("restore", APP, "--to", str(self._state))
            self._report.restore_seconds = found["seconds"]
            per_second = found["records"] / found["seconds"]
            step.numbers = [
                ("changelog records", f"{found['records']:,}"),
                ("tasks", f"{found['tasks']}"),
                ("records per second", f"{per_second:,.0f}"),
            ]
            step.sentence = (
                f"All local state was deleted, and rebuilt from {found['records']:,} changelog records in "
                f"{found['seconds']:.2f} s."
            )

    def compaction(self) -> None:
        """Apply the recommended policy to the busiest changelog, and wait for the broker's cleaner."""
        with self._step("Tune compaction for a restore time") as step:
            topic, rate = max(self._updates_per_second.items(), key=lambda found: found[1])
            before = changelog_sizes(self._brokers, list(self._updates_per_second))
            tuned = tune(self._shell, self._brokers, self._cluster, (topic, rate), self._state.parent)
            after = changelog_sizes(self._brokers, list(before))
            self._report.changelogs = [TopicBytes(name, before[name], after[name]) for name in before]
            step.numbers = [
                ("superseded", f"{tuned.superseded_share:.0%}"),
                ("restore of this changelog as it was", f"{tuned.now_seconds:.2f} s"),
                ("asked for", f"{tuned.asked_seconds:.2f} s"),
                ("before", page.human_bytes(before[topic])),
                ("after", page.human_bytes(after[topic])),
                ("until the cleaner had been there", f"{tuned.waited.seconds:.1f} s"),
            ]
            settings = ", ".join(f"{name}={value}" for name, value in sorted(tuned.changes.items()))
            step.sentence = (
                f"Of the {tuned.records:,} records in {topic}, {tuned.superseded_share:.0%} were superseded. "
                f"For a restore within {tuned.asked_seconds:.2f} s the tuner set {settings or 'nothing'}; the log "
                f"went from {page.human_bytes(before[topic])} to {page.human_bytes(after[topic])}. "
                f"{tuned.waited.why}"
            ).rstrip()

    def repartition(self) -> None:
        """Move all state to more partitions with the Spark job."""
        before = self._catalog().active.partitions
        with self._step(f"Repartition {before} → {PARTITIONS_AFTER} with Spark") as step:
            (found,) = self._shell.json("scale", "start", APP, "--partitions", str(PARTITIONS_AFTER))
            self._report.repartition_seconds = found["seconds_total"]
            step.numbers = [
                ("keys moved and audited", f"{found['keys_total']:,}"),
                ("ranges equal", f"{sum(map(is_equal, found['audit']))}"),
                ("moving", f"{found['seconds_moving']:.1f} s"),
                ("auditing", f"{found['seconds_auditing']:.1f} s"),
                ("predicted", "{seconds_low:.0f} to {seconds_high:.0f} s".format(**found["predicted"])),
            ]
            step.sentence = (
                f"A Spark job moved {found['keys_total']:,} keys from {found['partitions_from']} to "
                f"{found['partitions_to']} partitions in {found['seconds_total']:.1f} s, and its audit of "
                f"{len(found['audit'])} key ranges found both sides equal."
            )

    def rest(self) -> None:
        """Go on with the rest of the year in the new generation."""
        with self._step(f"Go on with the rest of the year on {PARTITIONS_AFTER} partitions") as step:
            feed.produce(self._brokers, self._rest, stopped=self._stopping.is_set)
            run, started = self._run("workers-2"), time.monotonic()
            self._wait_drained(run)
            seconds = time.monotonic() - started
            run.stop()
            self._report.records = self._committed()
            step.numbers = [
                ("flights", f"{len(self._rest):,}"),
                ("flights per second, start included", f"{len(self._rest) / seconds:,.0f}"),
            ]
            step.sentence = (
                f"{len(self._rest):,} more flights were processed; {self._report.records:,} in all."
            )

    def compare(self) -> None:
        """Every final result against the oracle, every live key against the routing table."""
        with self._step("Compare every result with the batch computation") as step:
            started = time.monotonic()
            right = oracle.answers(len(self._first) + len(self._rest))
            oracle_seconds = time.monotonic() - started
            found = results.read_results(self._brokers)
            state = results.read_state(self._shell, APP, self._state)
            self._report.comparisons = [
                *results.comparisons(right, found, "the output topics"),
                *results.comparisons(right, state, "the state"),
            ]
            self._report.placements = placements(self._brokers, self._catalog())
            self._report.delay_by_month = results.delay_by_month(found)
            self._report.ranking = [
                (tailnum, found.aircraft[tailnum]["aircraft"] or "not registered", minutes)
                for tailnum, minutes in found.top
            ]
            compared = sum(comparison.compared for comparison in self._report.comparisons)
            keys = sum(placement.keys for placement in self._report.placements)
            step.numbers = [("DuckDB over the raw files", f"{oracle_seconds:.1f} s")]
            step.sentence = (
                f"{compared:,} results compared and {keys:,} live keys looked up on their partitions: "
                f"{self._report.mismatches:,} wrong."
            )

    # --- parts of steps ---------------------------------------------------------------------------------

    def _run(self, name: str) -> Background:
        options = ["--workers", str(WORKERS), "--state-dir", str(self._state), "--verbose"]
        return self._shell.start(name, "run", APP, *options)

    def _feeding(self, records: Sequence[feed.Departure]) -> Failing:
        rate = min(
            FEED_PER_SECOND, len(records) / FEED_SECONDS_MIN
        )  # slow enough to kill a worker in the middle

        def work() -> int:
            return feed.produce(self._brokers, records, rate, self._stopping.is_set)

        thread = Failing(work, "feed")
        thread.start()
        return thread

    def _is_in_the_middle(self) -> bool:
        """True when state of every stage has been committed, and enough of the input."""
        return self._committed() >= KILL_SHARE * len(self._first) and self._has_state()

    def _has_state(self) -> bool:
        """True when every store has something in its changelog."""
        return all(any(found.slots for found in ranges) for ranges in self._changelog_ranges().values())

    def _kill_and_wait(self, run: Background) -> tuple[list[str], float]:
        """Kill the victim and delete its state; returns its tasks with state, and the seconds until all ran again."""
        lost = running_tasks(run.text(), VICTIM)
        seen = len(run.text())
        os.kill(worker_pids(run.text())[VICTIM], signal.SIGKILL)
        folders = [each for task in lost for each in self._state.glob(f"{APP_ID}/g*/{task}")]
        assert folders, "each of the workers has tasks with state"
        for folder in folders:
            shutil.rmtree(folder)
        wait = lambda: set(lost) <= set(running_tasks(run.text()[seen:]))  # noqa: E731
        back_seconds = run.wait_until(wait, "the restart of the killed worker's tasks", WAIT_SECONDS)
        return [folder.name for folder in folders], back_seconds

    def _wait_drained(self, run: Background) -> None:
        catalog = self._catalog()
        try:
            run.wait_until(
                lambda: is_drained(self._cluster, catalog), "the end of the input", WAIT_SECONDS, 0.2
            )
        except CommandFailed as late:
            behind = [lag for lag in application_lag(self._cluster, catalog) if lag.slots]
            raise CommandFailed(f"{late}\nNot processed: {behind}") from late

    def _catalog(self) -> Catalog:
        return ControlTopic(self._cluster, APP_ID).load()

    def _committed(self) -> int:
        """Flights whose processing the first stage has committed."""
        source = [TopicPartition(feed.TOPIC, number) for number in range(feed.PARTITIONS)]
        return sum(
            found.offset_next for found in self._cluster.committed(APP_ID, source, stable=False).values()
        )

    def _changelog_ranges(self) -> dict[str, list[OffsetRange]]:
        """Changelog → the log of each of its partitions."""
        catalog = self._catalog()
        logs = {}
        for store in catalog.stores.values():
            topic = changelog_topic(APP_ID, store.name, catalog.active.generation)
            partitions = [TopicPartition(topic, number) for number in range(catalog.partitions(store.stage))]
            logs[topic] = list(self._cluster.ranges(partitions).values())
        return logs


def is_equal(row: dict[str, int]) -> bool:
    """True when one range of the audit has the same keys and the same hash on both sides."""
    return row["keys_before"] == row["keys_after"] and row["hash_before"] == row["hash_after"]
