"""What exporters tell of the cleaner: the text format, the names that differ, and CPU from the bytes moved.

The expositions were recorded with jmx_prometheus_javaagent 1.0.1 in a Kafka 4.3.1 broker, once with the rules in
``docker/jmx-exporter`` and once without any, before and after a topic of 200 keys was written at 1,000 updates/s.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.workload import Workload
from stateflow.compaction.sensing.cleaner_metrics import CleanerMetrics, estimate, warnings
from stateflow.compaction.sensing.exposition import Sample, parse
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy

RECORDED = Path(__file__).parent / "expositions"
SECONDS = 7.8
LOAD = (
    Workload(
        partitions=1, live_records=200, updates_per_second=1000, record_bytes=124, live_record_bytes=130
    ),
    Policy(segment_ms=200, segment_index_bytes=65_536, dirty_ratio=0.01),
    CleanerSettings(backoff_ms=1000, dedupe_buffer_bytes=16 << 20),
)
MEASURED_CORES = {"with-rules": 0.0280, "without-rules": 0.0185}
"""Of the cleaner threads, from /proc, in the same runs."""


def recorded(name: str) -> CleanerMetrics:
    return CleanerMetrics.of(list(parse((RECORDED / f"{name}.txt").read_text())))


@pytest.mark.parametrize("rules", ["with-rules", "without-rules"])
def test_the_bytes_of_the_cleaner_are_found_whatever_the_exporter_calls_them(rules: str) -> None:
    before, after = recorded(f"{rules}-1"), recorded(f"{rules}-2")
    assert before.moved_bytes_total == 0
    assert after.moved_bytes_total is not None
    assert after.moved_bytes_total > 1e6
    assert after.cpu_seconds_total is not None
    assert (after.dead_threads, after.uncleanable_partitions) == (0, 0)
    assert warnings(after) == ()


@pytest.mark.parametrize("rules", ["with-rules", "without-rules"])
def test_the_interval_contains_the_cpu_that_the_threads_used(rules: str) -> None:
    found = estimate(recorded(f"{rules}-1"), recorded(f"{rules}-2"), SECONDS, LOAD, Costs())
    assert found is not None
    assert found.low < MEASURED_CORES[rules] < found.high
    assert found.low < found.cores < found.high


def test_a_topic_that_is_never_cleaned_leaves_only_what_the_records_cost() -> None:
    idle = (LOAD[0], replace(LOAD[1], dirty_ratio=1.0), LOAD[2])
    found = estimate(recorded("with-rules-1"), recorded("with-rules-2"), SECONDS, idle, Costs())
    known = estimate(recorded("with-rules-1"), recorded("with-rules-2"), SECONDS, LOAD, Costs())
    assert found is not None
    assert known is not None
    assert found.cores < known.cores
    assert found.high > known.cores  # all that the process used


def test_without_the_count_of_bytes_there_is_no_estimate() -> None:
    nothing = CleanerMetrics.of([Sample("kafka_heap_used_bytes", {}, 1.0)])
    assert estimate(nothing, nothing, 1.0, LOAD, Costs()) is None


def test_brokers_are_added_up_and_trouble_is_told() -> None:
    text = (
        'kafka_log_logcleanermanager_uncleanable_partitions_count{directory="/a"} 1\n'
        'kafka_log_logcleanermanager_uncleanable_partitions_count{directory="/b"} 2\n'
        "kafka_log_logcleaner_deadthreadcount 1.0\n"
        "kafka_log_logcleanermanager_max_dirty_percent -3\n"
        "kafka_log_logcleanermanager_max_dirty_percent 40\n"
        "kafka_log_cleaner_io_bytes_total 10\nkafka_log_cleaner_io_bytes_total 30\n"
    )
    found = CleanerMetrics.of(list(parse(text)))
    assert found.moved_bytes_total == 40
    assert found.dirty_percent_max == 40
    dead, uncleanable = warnings(found)
    assert "1 cleaner thread" in dead
    assert "3 partition(s)" in uncleanable


def test_the_text_format_is_read_with_its_escapes_and_its_oddities() -> None:
    text = (
        "# HELP a is a metric\n# TYPE a gauge\n\n"
        'a{name="x\\"y\\\\z\\n",other="1",} 1.5e3 1700000000000\n'
        "b NaN\nc +Inf\nbroken{\nd  -7 \n"
    )
    found = list(parse(text))
    assert found[0] == Sample("a", {"name": 'x"y\\z\n', "other": "1"}, 1500.0)
    assert [sample.name for sample in found] == ["a", "b", "c", "d"]
    assert found[-1].value == -7
