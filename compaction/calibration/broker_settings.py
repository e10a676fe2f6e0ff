"""Other cleaner settings on a broker, for the time of an experiment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.control.broker_settings import BACKOFF, BUFFER
from stateflow.compaction.settings.topic_settings import CleanerSettings


@contextmanager
def cleaner_settings(admin: ClusterAdmin, wanted: CleanerSettings) -> Iterator[None]:
    """Another dedupe buffer and backoff on the one broker while the block runs; they restart the cleaner threads."""
    broker = next(iter(admin.broker_addresses()))
    before = admin.cleaner_settings(broker)
    names = _settings(wanted)
    admin.alter_broker(broker, names)
    try:
        yield
    finally:
        admin.alter_broker(broker, dict.fromkeys(names))
        if admin.cleaner_settings(broker) != before:  # somebody had set them dynamically before
            admin.alter_broker(broker, _settings(before))


def _settings(cleaner: CleanerSettings) -> dict[str, str | None]:
    return {
        BUFFER: str(cleaner.dedupe_buffer_bytes),
        BACKOFF: str(cleaner.backoff_ms),
    }
