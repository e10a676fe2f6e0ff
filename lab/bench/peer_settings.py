"""How the peers are set up for a benchmark: what is given to them, and what the result shows.

Each setting that is not here has its default. Those of Kafka Streams and of Java's clients are for throughput: a record
cache (on by default, with 10 MB), large polls, fetches and batches, and compression.
"""

from __future__ import annotations

from typing import Any

from stateflow.lab.bench.workload import Workload

_FETCH_BYTES = 8 << 20
_CONSUMER = {
    "max.poll.records": 20_000,
    "max.partition.fetch.bytes": _FETCH_BYTES,
    "fetch.max.bytes": 64 << 20,
}
_PRODUCER = {
    "linger.ms": 100,
    "batch.size": 512 << 10,
    "buffer.memory": 128 << 20,
    "compression.type": "lz4",
}


def streams_settings(load: Workload) -> dict[str, dict[str, Any]]:
    """Of Kafka Streams, its consumers and its producers, without what names a place."""
    exactly_once = load.guarantee == "exactly-once"
    streams = {
        "num.stream.threads": load.threads,
        "commit.interval.ms": round(load.commit_seconds * 1000),
        "processing.guarantee": "exactly_once_v2" if exactly_once else "at_least_once",
        "statestore.cache.max.bytes": 128 << 20,
        "metrics.recording.level": "INFO",
        "auto.offset.reset": "earliest",
    }
    return {"streams": streams, "consumer": dict(_CONSUMER), "producer": dict(_PRODUCER)}


def latency_streams_settings(threads: int, commit_seconds: float | None) -> dict[str, Any]:
    """Of Kafka Streams where latency is measured: its defaults, without linger.

    It is a static member of its group; else, started again, it would wait for the session of its former self to end.
    """
    own = {
        "num.stream.threads": threads,
        "processing.guarantee": "exactly_once_v2",
        "auto.offset.reset": "earliest",
        "producer.linger.ms": 0,
        "main.consumer.group.instance.id": "one",
    }
    return own if commit_seconds is None else {**own, "commit.interval.ms": round(commit_seconds * 1000)}


def quix_settings(load: Workload) -> dict[str, Any]:
    """Arguments of Quix's application."""
    return {
        "auto_offset_reset": "earliest",
        "commit_interval": load.commit_seconds,
        "processing_guarantee": load.guarantee,
        "producer_extra_config": {"linger.ms": 20, "compression.type": "lz4"},
        "consumer_extra_config": {
            "queued.min.messages": 1_000_000,
            "fetch.message.max.bytes": _FETCH_BYTES,
        },
    }


def faust_settings(load: Workload) -> dict[str, Any]:
    """Arguments of Faust's application."""
    exactly_once = load.guarantee == "exactly-once"
    return {
        "store": "rocksdb://?driver=rocksdict",
        "processing_guarantee": "exactly_once" if exactly_once else "at_least_once",
        "topic_partitions": load.partitions,
        "topic_replication_factor": 1,
        "broker_commit_interval": load.commit_seconds,
        "broker_max_poll_records": 20_000,
        "stream_buffer_maxsize": 20_000,
        "producer_compression_type": "lz4",
        "producer_linger": 0.02,
    }
