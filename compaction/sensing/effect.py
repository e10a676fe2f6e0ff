"""Whether compaction settings can act on a measured topic at all, and what else acts on it beside them."""

from __future__ import annotations

from stateflow.compaction.cluster.which_topics import TopicRole
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.cleanup import UNLIMITED, Cleanup
from stateflow.compaction.settings.topic_settings import CleanerSettings
from stateflow.compaction.settings.units import duration, size
from stateflow.errors import ConfigError


def require_effect(found: Measurement) -> None:
    """Raise ``ConfigError`` when no compaction setting can have an effect on the topic's restore."""
    require_effect_on(found.topic, found.cleanup, found.cleaner, found.role)


def require_effect_on(topic: str, cleanup: Cleanup, cleaner: CleanerSettings, role: TopicRole) -> None:
    """The same, of a topic whose log was not read: what refuses it is known before."""
    if not cleanup.compacts:
        raise ConfigError(
            f"{topic} has cleanup.policy={cleanup.policy}: Kafka never compacts it, so no compaction setting has "
            "any effect on its size or its restore.",
            action="Set cleanup.policy=compact if only the newest record of each key counts; if not, retention.ms and "
            "retention.bytes decide how much a restore reads.",
            topic=topic,
        )
    if not cleaner.enabled:
        raise ConfigError(
            f"log.cleaner.enable=false on a broker that leads {topic}: nothing there is compacted, whatever is set.",
            action="Take log.cleaner.enable=false out of that broker's server.properties and restart it.",
            topic=topic,
        )
    if role.kind == "retired":
        raise ConfigError(
            f"{topic} belongs to a retired generation of {role.app}: nobody writes it and nothing restores from it.",
            action=f"Use --app {role.app} for the changelogs in use; `stateflow scale finalize` deletes this one.",
            topic=topic,
        )
    if role.kind == "filling":
        raise ConfigError(
            f"A repartition of {role.app} is filling {topic}: what is appended now is copied, no update rate.",
            action="Run this again when `stateflow scale status` shows that the new generation is active.",
            topic=topic,
        )


def cautions(found: Measurement) -> tuple[str, ...]:
    """What makes the settings act later or less than predicted, the gravest first, in sentences."""
    told = [_idle(found), _retention(found), _tiered(found), _cleaners(found), found.restore_timed_busy]
    return tuple(sentence for sentence in told if sentence)


def is_idle(found: Measurement) -> bool:
    """True when nobody writes: a segment closes only when a record arrives, and the open one is never cleaned."""
    return not found.writes_seen


def _idle(found: Measurement) -> str:
    if not is_idle(found):
        return ""
    seconds = found.restore.seconds(found.records)
    touch = (
        " `apply --until-cleaned` appends a record to each partition that closes its segment."
        if found.role.kind == "changelog"
        else " Let its application write, or wait until it does: nothing else closes a segment."
    )
    return (
        f"Nobody wrote to it while it was watched: settings cannot act on an idle log, and it stays as it is, "
        f"{found.records:,} records and {duration(seconds)} to read, until records arrive.{touch}"
    )


def _retention(found: Measurement) -> str:
    cleanup = found.cleanup
    if not cleanup.deletes:
        return ""
    bounds = []
    if cleanup.retention_ms != UNLIMITED:
        bounds.append(f"older than {duration(cleanup.retention_ms / 1000)}")
    if cleanup.retention_bytes != UNLIMITED:
        bounds.append(f"beyond {size(cleanup.retention_bytes)} of a partition")
    return (
        f"cleanup.policy is {cleanup.policy}: retention deletes whole segments {' or '.join(bounds)}, the newest "
        "records of keys among them. A restore does not bring back a key that was last written before that; where it "
        "must, set retention.ms and retention.bytes to -1."
    )


def _tiered(found: Measurement) -> str:
    if not found.cleanup.tiered:
        return ""
    return (
        "Its closed segments are copied to remote storage: shorter ones are more objects and more requests there, and "
        "services allow no less than their own lengths (--provider)."
    )


def _cleaners(found: Measurement) -> str:
    if not found.cleaners_known:
        return (
            "The brokers' cleaner settings may not be read: Kafka's defaults are assumed (one thread that looks every "
            "15 s, a buffer of 128 MiB). With a longer backoff or a busier cleaner the log grows larger than predicted."
        )
    if not found.cleaners_alike:
        return "The brokers that lead its partitions have different cleaner settings; one of them was taken for all."
    return ""
