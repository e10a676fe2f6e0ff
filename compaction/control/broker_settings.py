"""Cleaner settings of brokers, changed on request and taken back: the half of a pass that no topic setting reaches.

Every pass zero-fills the dedupe buffer, which is sized for the whole broker; a buffer that fits makes passes two to
three times cheaper. Too small a one is worse than slow: a segment with more offsets than the buffer holds keys is
never cleaned again. So the buffer is chosen for every compacted topic of the cluster, twice over.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from stateflow.clock import Clock, SystemClock
from stateflow.compaction.advice.fitting import BUFFER_BYTES_MIN
from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.control.change import (
    Applied,
    note_rolled_back,
    nothing_changed,
    require_accepted,
    require_unchanged,
)
from stateflow.compaction.control.journal import Journal, JournalEntry
from stateflow.compaction.control.kept_files import written_to
from stateflow.compaction.sensing.cleaner_checkpoint import cleaned_offsets
from stateflow.compaction.sensing.measure import local_broker
from stateflow.compaction.settings.topic_settings import CleanerSettings
from stateflow.errors import BrokerRefused, ConfigError, TopicMissing
from stateflow.log.base import Cluster
from stateflow.record import OffsetRange, TopicPartition

BUFFER, BACKOFF = "log.cleaner.dedupe.buffer.size", "log.cleaner.backoff.ms"
BYTES_PER_KEY = 24
"""In the buffer: a hash of 16 bytes and an offset."""
RECORD_BYTES_MIN = 40
"""No record of a compacted topic is taken to be smaller, its share of a batch header included."""
GROWTH = 2.0
"""A segment may come to hold so many times the offsets that its whole partition holds now."""
_DELETIONS_MAX = 10
"""So often topics are asked for again, of which one was deleted amid the question."""
_WORTH_IT = 0.75
"""Another buffer is set only when it is at most so large a part of the present one."""


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """What to set on every broker, and what that rests on."""

    brokers: tuple[int, ...]
    changes: dict[str, str | None]
    before: dict[str, str]
    """In force now, on the broker that was looked at."""
    cleaner: CleanerSettings
    """With the changes made."""
    largest_topic: str
    """The one whose segments decide how small the buffer may be."""
    offsets_max: int
    """Offsets that one of its segments may hold."""


def plan_brokers(
    cluster: Cluster,
    admin: ClusterAdmin,
    now: CleanerSettings,
    fitting: CleanerSettings,
    tuned: Sequence[str],
) -> BrokerPlan:
    """Settings as fitting as is safe for every compacted topic, from those in force. Changes nothing.

    ``tuned`` are the topics whose segments are about to be made short: they count by their live keys alone.

    ``changes`` is empty when what is in force is as good. Raises ``ConfigError`` when brokers differ in their
    settings: then nobody can say what one change would do.
    """
    brokers = tuple(sorted(admin.broker_addresses()))
    found = {broker: admin.cleaner_settings(broker) for broker in brokers}
    if any(settings != now for settings in found.values()):
        raise ConfigError(
            "The brokers of this cluster have different cleaner settings.",
            action="Make them alike first, or set log.cleaner.… by hand.",
        )
    topic, offsets = _largest_segment(cluster, admin, frozenset(tuned))
    needed = now.threads * max(BUFFER_BYTES_MIN, offsets * BYTES_PER_KEY / now.load_factor)
    buffer_bytes = max(fitting.dedupe_buffer_bytes, 2 ** math.ceil(math.log2(needed)))
    changes: dict[str, str | None] = {}
    if buffer_bytes <= _WORTH_IT * now.dedupe_buffer_bytes:
        changes[BUFFER] = str(buffer_bytes)
    if fitting.backoff_ms < now.backoff_ms:
        changes[BACKOFF] = str(fitting.backoff_ms)
    return BrokerPlan(
        brokers=brokers,
        changes=changes,
        before={BUFFER: str(now.dedupe_buffer_bytes), BACKOFF: str(now.backoff_ms)},
        cleaner=replace(
            now,
            dedupe_buffer_bytes=buffer_bytes if BUFFER in changes else now.dedupe_buffer_bytes,
            backoff_ms=min(now.backoff_ms, fitting.backoff_ms),
        ),
        largest_topic=topic,
        offsets_max=offsets,
    )


def apply_brokers(
    admin: ClusterAdmin,
    plan: BrokerPlan,
    journal: Journal,
    *,
    dry_run: bool = False,
    clock: Clock | None = None,
) -> list[Applied]:
    """Set a plan on all its brokers: validated by every one before the first is changed, journalled before each.

    Raises ``BrokerRefused`` with nothing changed. Cleaner threads restart; a pass under way begins anew.
    """
    if not plan.changes:
        return []
    overrides = {broker: admin.broker_overrides(broker) for broker in plan.brokers}
    applied = [
        Applied(
            topic=entry_name(broker),
            dry_run=dry_run,
            changes=plan.changes,
            before={name: overrides[broker].get(name) for name in plan.changes},
            effective_before=dict(plan.before),
            refused=_refused(admin, broker, plan.changes),
        )
        for broker in plan.brokers
    ]
    if dry_run:
        return applied
    refused = {name: why for one in applied for name, why in one.refused.items()}
    if refused:
        raise BrokerRefused(
            f"No broker was changed. {' '.join(refused.values())}",
            action="Ask the operator of the brokers, or apply without --broker-settings.",
            refused=refused,
        )
    for broker, one in zip(plan.brokers, applied, strict=True):
        now_ms = (clock or SystemClock()).now_ms()
        with written_to(journal.path(one.topic), nothing_changed(one.topic)):
            journal.append(JournalEntry(one.topic, now_ms, dict(one.changes), dict(one.before)))
        admin.alter_broker(broker, one.changes)
    return applied


def rollback_brokers(
    admin: ClusterAdmin,
    journal: Journal,
    *,
    dry_run: bool = False,
    force: bool = False,
    clock: Clock | None = None,
) -> list[Applied]:
    """Put back what stood on the brokers before the newest change from this machine.

    Every broker is looked at before the first is changed. Raises ``ConfigError`` when there is nothing to put back, or
    when somebody changed the same settings since (unless ``force``), and ``BrokerRefused``.
    """
    planned = [
        (broker, entry, _undone(admin, broker, entry, dry_run=dry_run, force=force))
        for broker in sorted(admin.broker_addresses())
        if (entry := journal.last_applied(entry_name(broker))) is not None
    ]
    if not planned:
        raise ConfigError(
            "No change of a broker is on record here.",
            action="Roll back on the machine that applied it, or set the values by hand.",
        )
    if not dry_run:
        for _, _, applied in planned:
            require_accepted(applied)
        journal.require_writable("No broker was changed.")
        for broker, entry, _ in planned:
            admin.alter_broker(broker, entry.before)
            note_rolled_back(journal, entry, clock)
    return [applied for _, _, applied in planned]


def _undone(admin: ClusterAdmin, broker: int, entry: JournalEntry, *, dry_run: bool, force: bool) -> Applied:
    overrides = admin.broker_overrides(broker)
    if not force:
        require_unchanged(f"broker {broker}", entry, overrides)
    standing = {name: overrides.get(name) for name in entry.before}
    return Applied(
        topic=entry.topic,
        dry_run=dry_run,
        changes=dict(entry.before),
        before=standing,
        effective_before=dict(standing),
        refused=_refused(admin, broker, entry.before),
    )


def entry_name(broker: int) -> str:
    """Under which a broker's changes stand in the journal: no topic can be called so."""
    return f"broker:{broker}"


def _refused(admin: ClusterAdmin, broker: int, changes: Mapping[str, str | None]) -> dict[str, str]:
    try:
        admin.alter_broker(broker, changes, validate_only=True)
    except BrokerRefused as error:
        return dict.fromkeys(changes, error.message)
    return {}


def _largest_segment(cluster: Cluster, admin: ClusterAdmin, tuned: frozenset[str]) -> tuple[str, int]:
    """The compacted topic whose segments may hold most offsets that were never cleaned, and how many: by the size of
    a segment, or by what lies there now.
    """
    counts = admin.all_partition_counts()
    may_hold = {
        topic: int(config["segment.bytes"]) // RECORD_BYTES_MIN
        for topic, config in admin.topic_configs(set(counts) - tuned).items()
        if "compact" in config.get("cleanup.policy", "")
    }
    offsets = {
        topic: min(may_hold[topic], math.ceil(GROWTH * dirty))
        for topic, dirty in _dirty_offsets(cluster, admin, may_hold).items()
    }
    worst = max(offsets, key=offsets.__getitem__, default="")
    return (worst, offsets[worst]) if worst and offsets[worst] > 1 else ("", 1)


def _dirty_offsets(cluster: Cluster, admin: ClusterAdmin, topics: Iterable[str]) -> dict[str, int]:
    """Of each topic the most offsets that a partition holds and no pass has cleaned; all it holds, where that cannot be
    seen. All are asked for together: a cluster has thousands. One that is deleted meanwhile is left out.
    """
    replicas = admin.replica_sizes((), beside=topics)
    cleaned = cleaned_offsets({replica.directory for replica in replicas}) if local_broker(admin) else None
    dirty: dict[str, int] = {}
    for partition, one in _ranges_of_all(cluster, topics).items():
        offsets = one.offset_next - max(one.offset_first, (cleaned or {}).get(partition, 0))
        dirty[partition.topic] = max(dirty.get(partition.topic, 0), offsets)
    return dirty


def _ranges_of_all(cluster: Cluster, topics: Iterable[str]) -> dict[TopicPartition, OffsetRange]:
    for _ in range(_DELETIONS_MAX):
        there = cluster.describe(topics)
        partitions = [
            TopicPartition(name, number) for name in there for number in range(there[name].partitions)
        ]
        with suppress(TopicMissing):  # deleted between the two questions
            return cluster.ranges(partitions)
    raise BrokerRefused(
        f"Topics were deleted {_DELETIONS_MAX} times while the brokers' settings were planned.",
        action="Try again when fewer topics come and go.",
    )
