"""Settings of the Kafka clients: the ones that correctness and speed rest on, and the user's own beside them.

The user's settings (security, timeouts of the network, …) pass through untouched and are never logged in clear;
the ones that this library's promises rest on cannot be overridden.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stateflow.errors import ConfigError
from stateflow.log.kafka.end_watch import (
    RETRY_BACKOFF_MS,
    STATISTICS_INTERVAL_MS,
    interval_beside,
    interval_within,
)
from stateflow.memory import QUEUED_RECORD_BYTES, SENT_RECORD_BYTES, MemoryShares, memory_shares

Settings = dict[str, Any]

_RECORD_BYTES_MAX = 64 << 20
_BATCH_BYTES = 1_000_000
_FETCH_BYTES_MIN, _FETCH_BYTES_MAX = 1 << 20, 16 << 20
_QUEUED_KBYTES_MAX, _QUEUED_RECORDS_MAX, _SENDING_MAX = 2_097_151, 10_000_000, (1 << 31) - 1
"""The most that the client takes; what a machine has more of is left to others."""
_SHARES = memory_shares()
_RESTORES = 2
_LINGERS_PER_TIMEOUT = 10
"""A transaction's records are sent long before it times out, and the client wants them to linger for less than that."""


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """How the clients of one cluster behave. Times in the unit of their name.

    ``request_timeout_seconds`` bounds every administrative call; ``unreachable_seconds`` is how long a reader or
    group member bears a cluster that does not answer before it raises ``BrokerUnreachable``. An open transaction
    whose writer died holds readers back for ``transaction_timeout_ms``. A member is told of a rebalance with its next
    heartbeat: until then partitions that another has given up, and it shall have, are nobody's.

    ``member_queue_bytes`` and ``reader_queue_bytes`` bound what a member of a group, or a reader, fetches ahead over
    all its partitions, ``writer_queue_bytes`` what waits in a producer. After a commit that took long a transactional
    writer waits for two statistics of its client, ``statistics_ms`` apart, before it sends more (``end_watch.py``).
    Nobody sees what a transaction sends before it ends, and the flush before that waits for no linger: so its records
    are sent ``transaction_linger_ms`` after the first of a batch, in fewer requests than after ``linger_ms``. And of
    many tasks in a process those that commit first need not wait for what all others send: it is not sent yet.
    """

    request_timeout_seconds: float = 30.0
    unreachable_seconds: float = 60.0
    transaction_timeout_ms: int = 60_000
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 1_000
    max_poll_interval_ms: int = 300_000
    linger_ms: int = 10
    transaction_linger_ms: int = 6_000
    member_queue_bytes: int = _SHARES.input_bytes // 2
    reader_queue_bytes: int = _SHARES.restore_bytes_each(_RESTORES) // 2
    writer_queue_bytes: int = _SHARES.output_bytes
    statistics_ms: int = STATISTICS_INTERVAL_MS
    missing_topic_after_ms: int = 3_000

    @classmethod
    def within(
        cls, shares: MemoryShares, restores: int = _RESTORES, commit_interval_seconds: float = 0.0
    ) -> KafkaOptions:
        """Clients whose queues keep to their shares of a process's memory, for whoever commits so often."""
        return cls(
            member_queue_bytes=shares.input_bytes // 2,  # the worker keeps as much that it has read
            reader_queue_bytes=shares.restore_bytes_each(restores) // 2,
            writer_queue_bytes=shares.output_bytes,
            statistics_ms=interval_within(commit_interval_seconds),
        )


_RECOVERY: Mapping[str, object] = {
    # “rebootstrap”, the default since 2.10, forgets all brokers when none answers, again and again. In 2.16 requests to
    # coordinators then go to a broker that is no more, for ever, and connections are tried without a pause. Brokers
    # that are kept are found again by their names. Only if all come back under other names, it takes a new client.
    "metadata.recovery.strategy": "none",
}
_RECONNECT_MS, _RECONNECT_MAX_MS = "reconnect.backoff.ms", "reconnect.backoff.max.ms"
_RECONNECT_WITHIN_MS = 1_000
"""The longest pause between two attempts to connect, as in Kafka's own clients. librdkafka's default lets it grow to
10 s in an outage of 7 s: commits, heartbeats and requests then waited as long for a broker that was back."""
_READING: Mapping[str, object] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
}
_WRITING: Mapping[str, object] = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",
}
_GROUP: Mapping[str, object] = {
    "partition.assignment.strategy": "cooperative-sticky",
    "group.protocol": "classic",
}
_CRITICAL = 2
"""Of syslog's levels."""
_PRODUCER_ONLY = ("transaction.timeout.ms",)  # of the user's settings: other clients would warn about it
_OWN = ("bootstrap.servers", "group.id", "group.instance.id", "transactional.id", "on_delivery", "error_cb")


def checked(settings: Mapping[str, object]) -> Settings:
    """The user's settings. Raises ``ConfigError`` for one that this library sets itself to something else."""
    fixed = {**_READING, **_WRITING, **_GROUP}
    for name, value in settings.items():
        wanted = fixed.get(name)
        differs = name in fixed and str(value).lower() != str(wanted).lower()
        if name in _OWN or differs:
            raise ConfigError(
                f"The client setting {name!r} is not free: "
                + (f"it is always {wanted!r}." if differs else "stateflow sets it itself."),
                action="remove it from the client settings.",
                setting=name,
            )
    return dict(settings)


def _without(settings: Mapping[str, object], names: tuple[str, ...]) -> Settings:
    return {name: value for name, value in settings.items() if name not in names}


def _recovery(settings: Mapping[str, object]) -> Settings:
    """How brokers that went away are found again; the client refuses a longest pause below the first one."""
    first_ms = int(str(settings.get(_RECONNECT_MS, 0)))
    return {**_RECOVERY, _RECONNECT_MAX_MS: max(_RECONNECT_WITHIN_MS, first_ms)}


def admin_settings(bootstrap: str, settings: Mapping[str, object]) -> Settings:
    """For the administrative client. Its requests tell what they failed of, so its own lines would say it twice."""
    quiet = {} if "debug" in settings else {"log_level": _CRITICAL}
    return {
        **_recovery(settings),
        **quiet,
        **_without(settings, _PRODUCER_ONLY),
        "bootstrap.servers": bootstrap,
    }


def reader_settings(
    bootstrap: str, settings: Mapping[str, object], options: KafkaOptions, *, follows: bool = False
) -> Settings:
    """For a reader by assignment. The group id is required by the library and never used."""
    return {
        **_recovery(settings),
        # A full local queue is looked at again after this pause; the default of 1 s costs a bulk reader 85 %.
        "fetch.queue.backoff.ms": 5,
        # The end of a partition is told with the first empty answer, and a reader that is assigned something else
        # asks for it when the fetch that is under way has been answered: the default lets every short read last 0.5 s.
        # Records are answered with at once, however long a fetch may wait for them.
        "fetch.wait.max.ms": 500 if follows else 10,
        **_queue(options.reader_queue_bytes),
        "topic.metadata.propagation.max.ms": options.missing_topic_after_ms,
        **_without(settings, _PRODUCER_ONLY),
        **_READING,
        "bootstrap.servers": bootstrap,
        "group.id": "stateflow-reader",
    }


def _queue(queue_bytes: int) -> Settings:
    """What a consumer fetches ahead: half for contents, half for what the client adds to each record.

    It stops fetching when either is reached. A fetch that is under way may bring a part more: compressed, so that
    bound is smaller.
    """
    fetch_bytes = min(_FETCH_BYTES_MAX, max(_FETCH_BYTES_MIN, queue_bytes // 8))
    return {
        "queued.max.messages.kbytes": min(_QUEUED_KBYTES_MAX, queue_bytes // 2 // 1024),
        "queued.min.messages": min(_QUEUED_RECORDS_MAX, queue_bytes // 2 // QUEUED_RECORD_BYTES),
        "fetch.max.bytes": fetch_bytes,
        "max.partition.fetch.bytes": fetch_bytes // 2,
    }


def member_settings(
    bootstrap: str, settings: Mapping[str, object], options: KafkaOptions, group: str, instance: str | None
) -> Settings:
    """For a member of a consumer group."""
    session_timeout_ms = settings.get("session.timeout.ms", options.session_timeout_ms)
    made = {
        **reader_settings(bootstrap, settings, options),
        **{name: settings.get(name, own) for name, own in _queue(options.member_queue_bytes).items()},
        **_GROUP,
        # A partition that is started while a fetch waits at the broker is asked for with the next one only.
        "fetch.wait.max.ms": settings.get("fetch.wait.max.ms", 100),
        "group.id": group,
        "session.timeout.ms": session_timeout_ms,
        "heartbeat.interval.ms": settings.get("heartbeat.interval.ms", options.heartbeat_interval_ms),
        "max.poll.interval.ms": settings.get(
            "max.poll.interval.ms", max(options.max_poll_interval_ms, int(str(session_timeout_ms)))
        ),
    }
    if instance is not None:
        made["group.instance.id"] = instance
    return made


def client_record_bytes_max(settings: Mapping[str, object]) -> int:
    """The largest record that a producer with these settings takes."""
    return int(str(settings.get("message.max.bytes", _RECORD_BYTES_MAX)))


def client_batch_bytes(settings: Mapping[str, object]) -> int:
    """How much a producer with these settings sends to a partition at a time."""
    return int(str(settings.get("batch.size", _BATCH_BYTES)))


def writer_settings(
    bootstrap: str,
    settings: Mapping[str, object],
    options: KafkaOptions,
    transactional_id: str | None,
    writers: int = 0,
) -> Settings:
    """For a producer; with a transactional id, a transactional one, beside so many others in this process."""
    timeout_ms = settings.get("transaction.timeout.ms", options.transaction_timeout_ms)
    linger_ms = options.linger_ms
    if transactional_id is not None:
        linger_ms = min(options.transaction_linger_ms, int(str(timeout_ms)) // _LINGERS_PER_TIMEOUT)
    made = {
        **_recovery(settings),
        "compression.type": "lz4",
        "linger.ms": linger_ms,
        "batch.size": _BATCH_BYTES,
        # How large a record may be is the topic's to say: what could be read must be fit to be sent on. The client's
        # own default is below the broker's, and a record that is larger than the queue would never find room in it.
        "message.max.bytes": _RECORD_BYTES_MAX,
        "queue.buffering.max.messages": min(
            _SENDING_MAX, max(10_000, options.writer_queue_bytes // SENT_RECORD_BYTES)
        ),
        "queue.buffering.max.kbytes": min(
            _SENDING_MAX, max(_RECORD_BYTES_MAX, options.writer_queue_bytes) // 1024 + 1
        ),
        "topic.metadata.propagation.max.ms": options.missing_topic_after_ms,
        **settings,
        **_WRITING,
        "bootstrap.servers": bootstrap,
    }
    if transactional_id is not None:
        made["transactional.id"] = transactional_id
        made["statistics.interval.ms"] = interval_beside(options.statistics_ms, writers)
        made.setdefault("retry.backoff.ms", RETRY_BACKOFF_MS)
        made["transaction.timeout.ms"] = timeout_ms
        # Records must not outlive their transaction, and the default of 5 minutes is refused beside less.
        made["message.timeout.ms"] = timeout_ms
    return made
