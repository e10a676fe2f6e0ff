"""What a restore has to do, decided before it begins: reuse what is on disk, read a tail, or replay all.

The targets are fixed here, once. Whoever may write to the changelog must have been fenced before, otherwise
the restored state is only that of the moment of planning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from stateflow.changelog.sequences import Tail
from stateflow.checkpoint.changelog_policy import ChangelogPolicy
from stateflow.clock import Clock, SystemClock
from stateflow.errors import ChangelogTrimmed, TopicMissing, TopicRecreated
from stateflow.log.base import Cluster
from stateflow.record import OffsetRange, TopicPartition
from stateflow.store.base import StorePosition, TaskStores

Action = Literal["empty", "reuse", "tail", "replay"]

DELETE_RETENTION_MS_DEFAULT = 86_400_000
"""Kafka's own, of topics for which nothing else was set."""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """Everything that the decision for one store depends on."""

    store: str
    changelog: TopicPartition
    topic_id_recorded: str
    """The id that the catalog recorded when the topic was made."""
    topic_id: str | None
    """The id that the topic has now; None when it does not exist."""
    log: OffsetRange
    """Log start and last stable offset."""
    position: StorePosition | None
    """How far the local store reaches."""
    has_content: bool = False
    """Whether there is anything in a store without a position: whoever was dropping its content was killed."""
    tombstones_kept_ms: int = DELETE_RETENTION_MS_DEFAULT
    """The topic's ``delete.retention.ms``: how long at least a deletion stays in the log."""
    now_ms: int = 0
    held: str = "the local state"
    """What ``position`` is of, as reasons call it."""
    tombstones_since_ms: int = 0
    """From when on deletions are kept for ``tombstones_kept_ms``; before, it was ``tombstones_before_ms``."""
    tombstones_before_ms: int = DELETE_RETENTION_MS_DEFAULT
    accept_trimmed: bool = False
    """See ``ChangelogPolicy``."""
    is_undone: bool = False
    """What the content has last was taken for committed, and is not."""


@dataclass(frozen=True, slots=True)
class StorePlan:
    """What to do for one store: read ``offsets`` of ``changelog``, onto the local content or from empty."""

    store: str
    changelog: TopicPartition
    topic_id: str
    action: Action
    offsets: OffsetRange
    reason: str
    planned_ms: int
    """When the target was fixed: at its end the content is all that the log said then."""
    content_ms: int
    """When the content that is built upon was all that the log said; ``planned_ms`` for an empty one."""
    tombstones_kept_ms: int
    accept_trimmed: bool = False
    """See ``ChangelogPolicy``."""

    @property
    def from_empty(self) -> bool:
        """True when the local content is dropped first."""
        return self.action == "replay"


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """The plans of all stores of one task."""

    task: str
    stores: tuple[StorePlan, ...]

    @property
    def slots(self) -> int:
        """Offset slots to cover."""
        return sum(plan.offsets.slots for plan in self.stores)

    @property
    def is_done(self) -> bool:
        """True when nothing is to be read or dropped."""
        return all(plan.action in ("reuse", "empty") for plan in self.stores)


def plan_task(
    cluster: Cluster,
    task: str,
    changelogs: Mapping[str, TopicPartition],
    topic_ids: Mapping[str, str],
    stores: TaskStores,
    clock: Clock | None = None,
    *,
    ends: Mapping[str, int] | None = None,
    held: str = "the local state",
    log_policy: ChangelogPolicy | None = None,
    undone: Collection[str] = (),
) -> TaskPlan:
    """The plan of one task. ``topic_ids`` are the ids that the catalog recorded, by topic.

    ``ends`` is, by store, the offset up to which the changelog counts, where that is not its last stable offset;
    ``held`` is what reasons call the content of ``stores``; ``log_policy`` is what the catalog says about the logs;
    ``undone`` are stores of which the content cannot be gone on from (``undone_stores``).
    Raises ``TopicMissing``, ``TopicRecreated`` when a changelog is not the one that was recorded, and
    ``ChangelogTrimmed`` when a store must be built from a log that is not whole.
    """
    log_policy = log_policy or ChangelogPolicy()
    trim = log_policy.trim
    now_ms = (clock or SystemClock()).now_ms()
    topics = cluster.describe(changelog.topic for changelog in changelogs.values())
    ranges = cluster.ranges(changelog for changelog in changelogs.values() if changelog.topic in topics)
    facts = []
    for store, changelog in changelogs.items():
        info = topics.get(changelog.topic)
        position = stores.position(store)
        log = ranges.get(changelog, OffsetRange(0, 0))
        if ends is not None and store in ends:
            log = log.until(ends[store])
        is_behind = info is not None and (position is None or position.offset_next != log.offset_next)
        config = cluster.topic_config(changelog.topic) if is_behind else {}
        facts.append(
            StoreFacts(
                store=store,
                changelog=changelog,
                topic_id_recorded=topic_ids[changelog.topic],
                topic_id=None if info is None else info.topic_id,
                log=log,
                position=position,
                has_content=position is None and stores.has_content(store),
                tombstones_kept_ms=int(config.get("delete.retention.ms", DELETE_RETENTION_MS_DEFAULT)),
                now_ms=now_ms,
                held=held,
                tombstones_since_ms=0 if trim is None else trim.since_ms or now_ms,
                tombstones_before_ms=DELETE_RETENTION_MS_DEFAULT
                if trim is None
                else trim.tombstones_before_ms,
                accept_trimmed=log_policy.accept_trimmed,
                is_undone=store in undone,
            )
        )
    return TaskPlan(task, plan_stores(facts))


def undone_stores(
    cluster: Cluster, changelogs: Mapping[str, TopicPartition], tails: Mapping[str, Tail], stores: TaskStores
) -> frozenset[str]:
    """Stores whose content ends with a commit that was answered, and then lost with its marker (KAFKA-20734).

    Behind the newest commit record that counts a store may reach the end of what it has read: a marker. If it reaches a
    record there, that is one which it applied and nobody sees.
    """
    found = set()
    for store, tail in tails.items():
        position = stores.position(store)
        if tail.last is None or position is None:
            continue
        is_behind = tail.committed_next < position.offset_next <= tail.offset_next
        if is_behind and cluster.holds_record(changelogs[store], position.offset_next - 1):
            found.add(store)
    return frozenset(found)


def plan_stores(facts: Iterable[StoreFacts]) -> tuple[StorePlan, ...]:
    """The decision for each store."""
    return tuple(plan_store(fact) for fact in facts)


def plan_store(facts: StoreFacts) -> StorePlan:
    """The decision for one store; a pure function, its rules from top to bottom.

    Raises ``TopicMissing``, ``TopicRecreated`` and ``ChangelogTrimmed``: then the log no longer has what it
    recorded, and to go on would be to lose state silently.
    """
    topic_id = _checked_topic_id(facts)
    log, position = facts.log, facts.position
    if position is None:
        if log.is_empty and log.offset_first == 0:
            if facts.has_content:
                return _plan(facts, topic_id, "replay", log, f"nobody knows what {facts.held} is of")
            return _plan(facts, topic_id, "empty", log, "nothing was ever written")
        return _plan(facts, topic_id, "replay", log, f"there is no {facts.held.removeprefix('the ')}")
    if position.topic_id != topic_id:
        why = f"{facts.held} is of an earlier topic of this name"
        return _plan(facts, topic_id, "replay", log, why)
    if facts.is_undone:
        why = f"{facts.held} has changes of a commit that the log does not have"
        return _plan(facts, topic_id, "replay", log, why)
    if position.offset_next > log.offset_next:
        why = f"{facts.held} is at {position.offset_next}, ahead of the log's end {log.offset_next}"
        return _plan(facts, topic_id, "replay", log, why)
    if position.offset_next == log.offset_next:
        return _plan(facts, topic_id, "reuse", OffsetRange(log.offset_next, log.offset_next), "up to date")
    if position.offset_next < log.offset_first:
        why = f"the log begins at {log.offset_first}, after the end of {facts.held}, {position.offset_next}"
        return _plan(facts, topic_id, "replay", log, why)
    if _may_miss_deletions(facts, position):
        age_ms = facts.now_ms - position.applied_ms
        kept_ms = min(facts.tombstones_kept_ms, facts.tombstones_before_ms)
        why = (
            f"{facts.held} is {age_ms // 1000} s old, and the log kept deletions for {kept_ms // 1000} s only"
        )
        return _plan(facts, topic_id, "replay", log, why)
    tail = OffsetRange(position.offset_next, log.offset_next)
    return _plan(facts, topic_id, "tail", tail, f"{facts.held} reaches {position.offset_next}")


def _may_miss_deletions(facts: StoreFacts, position: StorePosition) -> bool:
    """True when the log may have dropped a deletion that was written after the content was up to date."""
    since_ms = min(facts.tombstones_since_ms, facts.now_ms)
    if since_ms - position.applied_ms > facts.tombstones_before_ms:
        return True
    return facts.now_ms - max(position.applied_ms, since_ms) > facts.tombstones_kept_ms


def trimmed(store: str, changelog: TopicPartition, log: OffsetRange, why: str) -> ChangelogTrimmed:
    """The error for a store that would have to be built from a log whose beginning was deleted."""
    return ChangelogTrimmed(
        f"{changelog} begins at {log.offset_first}: what it said before was deleted, so it alone does not hold the"
        f" state, and {why}.",
        action="restore from an image that reaches so far: `stateflow checkpoint list APP --images LOCATION` shows"
        " them and what is wrong with each; a worker's local state that reaches so far will do, too. If there is"
        " neither, the state is lost: `stateflow reset APP` begins anew from the input.",
        topic=changelog.topic,
        partition=changelog.partition,
        low=log.offset_first,
        store=store,
        why=why,
    )


def _checked_topic_id(facts: StoreFacts) -> str:
    topic = facts.changelog.topic
    if facts.topic_id is None:
        raise TopicMissing(
            f"the changelog {topic} does not exist.",
            action="restore the topic, or run `stateflow reset` to begin anew with empty state.",
            topic=topic,
        )
    if facts.topic_id != facts.topic_id_recorded:
        raise TopicRecreated(
            f"the changelog {topic} was deleted and created again (topic id {facts.topic_id}, the catalog"
            f" says {facts.topic_id_recorded}): what it held is gone from the log.",
            action="restore the topic's data from a backup; if the loss was meant, run `stateflow reset` to"
            " begin anew.",
            topic=topic,
        )
    return facts.topic_id


def _plan(facts: StoreFacts, topic_id: str, action: Action, offsets: OffsetRange, reason: str) -> StorePlan:
    if action == "replay" and offsets.offset_first > 0 and not facts.accept_trimmed:
        raise trimmed(facts.store, facts.changelog, offsets, reason)
    content_ms = facts.position.applied_ms if action == "tail" and facts.position else facts.now_ms
    return StorePlan(
        store=facts.store,
        changelog=facts.changelog,
        topic_id=topic_id,
        action=action,
        offsets=offsets,
        reason=reason,
        planned_ms=facts.now_ms,
        content_ms=content_ms,
        tombstones_kept_ms=facts.tombstones_kept_ms,
        accept_trimmed=facts.accept_trimmed,
    )
