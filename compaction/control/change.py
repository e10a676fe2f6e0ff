"""Applying a recommendation and taking it back: validated by the broker first, journalled before it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from stateflow.clock import Clock, SystemClock
from stateflow.compaction.advice.recommendation import Recommendation
from stateflow.compaction.cluster.topic_admin import TopicAdmin
from stateflow.compaction.control.journal import Journal, JournalEntry
from stateflow.compaction.control.kept_files import written_to
from stateflow.errors import BrokerRefused, ConfigError, ObjectiveUnreachable
from stateflow.log.kafka.in_force import same_value


@dataclass(frozen=True, slots=True)
class Applied:
    """What was changed, or would be."""

    topic: str
    dry_run: bool
    changes: dict[str, str | None]
    """Setting → new value; None removes the topic's own value."""
    before: dict[str, str | None]
    """Setting → the topic's own value until now; None where it inherited the broker's."""
    effective_before: dict[str, str | None]
    """Setting → the value in force until now, inherited or not."""
    refused: dict[str, str]
    """Setting → why the broker refuses it; never empty-handed: nothing was changed then."""

    def diff(self) -> list[str]:
        """One line per setting: old and new value."""
        return [
            f"{name}: {self.effective_before.get(name)} -> {value if value is not None else '(inherited)'}"
            for name, value in sorted(self.changes.items())
        ]

    def to_data(self) -> dict[str, Any]:
        """As plain data for JSON."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data


def refusals(admin: TopicAdmin, topic: str, changes: Mapping[str, str | None]) -> dict[str, str]:
    """The settings that the broker would refuse, with its reasons; nothing is changed."""
    if not changes:
        return {}
    try:
        admin.alter_topic(topic, changes, validate_only=True)
    except BrokerRefused as whole:
        refused = {}
        for name, value in changes.items():
            try:
                admin.alter_topic(topic, {name: value}, validate_only=True)
            except BrokerRefused as single:
                refused[name] = single.message
        return refused or dict.fromkeys(changes, whole.message)  # refused only in this combination
    return {}


def apply(
    admin: TopicAdmin,
    recommendation: Recommendation,
    journal: Journal,
    *,
    dry_run: bool = False,
    clock: Clock | None = None,
) -> Applied:
    """Set the recommended topic settings, all in one request.

    The values before are in the journal, durably, before anything changes, so a crash in between can be rolled back
    too. Raises ``ObjectiveUnreachable``; and with nothing changed ``BrokerRefused``, and ``DiskFull`` or
    ``ConfigError`` where the journal cannot be written. ``dry_run`` asks the broker to validate and reports refusals
    instead of raising.
    """
    require_reachable([recommendation])
    topic, changes = recommendation.topic, dict(recommendation.changes)
    with written_to(journal.path(topic), nothing_changed(topic)):
        return change(admin, topic, changes, journal, dry_run=dry_run, clock=clock)


def nothing_changed(name: str) -> str:
    """What it means that a change of a topic or broker cannot be written down."""
    return f"Nothing of {name} was changed, as it could not be undone."


def require_reachable(found: Sequence[Recommendation]) -> None:
    """Raise ``ObjectiveUnreachable`` unless compaction alone meets every one of these objectives."""
    missed = [one.topic for one in found if not one.reachable]
    if missed:
        bounded = any(
            one.objective.cpu_cores_max is not None or one.objective.disk_bytes_max is not None
            for one in found
        )
        within, other = (", within the bounds given", ", or other bounds") if bounded else ("", "")
        raise ObjectiveUnreachable(
            f"Compaction alone does not restore {', '.join(missed)} in time{within}.",
            action="Choose one of the alternatives that `stateflow compaction recommend` shows, or a longer "
            f"time{other}.",
            topics=missed,
        )


def change(
    admin: TopicAdmin,
    topic: str,
    wanted: Mapping[str, str | None],
    journal: Journal,
    *,
    dry_run: bool = False,
    session: str | None = None,
    clock: Clock | None = None,
) -> Applied:
    """Set topic settings with validation and journal; settings that already stand are left out."""
    overrides, effective = admin.topic_overrides(topic), admin.topic_config(topic)
    changes = {name: value for name, value in wanted.items() if not same_value(overrides.get(name), value)}
    applied = Applied(
        topic=topic,
        dry_run=dry_run,
        changes=changes,
        before={name: overrides.get(name) for name in changes},
        effective_before={name: effective.get(name) for name in changes},
        refused=refusals(admin, topic, changes),
    )
    if dry_run or not changes:
        return applied
    if applied.refused:
        reasons = " ".join(applied.refused.values())
        raise BrokerRefused(
            f"Nothing was changed. {reasons}",
            action="Run `stateflow compaction recommend` again: it searches without what the broker refuses.",
            topic=topic,
            refused=applied.refused,
        )
    now_ms = (clock or SystemClock()).now_ms()
    journal.append(JournalEntry(topic, now_ms, changes, applied.before, session=session))
    admin.alter_topic(topic, changes)
    return applied


def rollback(
    admin: TopicAdmin,
    topic: str,
    journal: Journal,
    *,
    dry_run: bool = False,
    force: bool = False,
    clock: Clock | None = None,
) -> Applied:
    """Undo the newest change of a topic that this machine made and did not undo yet.

    Values are compared as numbers: the broker answers 0 as 0.0. Raises ``ConfigError`` when there is nothing to undo,
    or when somebody changed the same settings since (``force`` undoes the change regardless), and ``BrokerRefused``
    when the broker does not take the former values, or the journal cannot be written (also ``DiskFull``); nothing was
    changed then.
    """
    entry = journal.last_applied(topic)
    if entry is None:
        raise ConfigError(
            f"No change of {topic} is on record here.",
            action="Roll back on the machine that applied it, or set the values by hand.",
            topic=topic,
        )
    overrides, effective = admin.topic_overrides(topic), admin.topic_config(topic)
    if not force:
        require_unchanged(topic, entry, overrides)
    applied = Applied(
        topic=topic,
        dry_run=dry_run,
        changes=dict(entry.before),
        before={name: overrides.get(name) for name in entry.before},
        effective_before={name: effective.get(name) for name in entry.before},
        refused=refusals(admin, topic, entry.before),
    )
    if not dry_run:
        require_accepted(applied)
        journal.require_writable(f"Nothing of {topic} was changed.")
        admin.alter_topic(topic, entry.before)
        note_rolled_back(journal, entry, clock)
    return applied


def note_rolled_back(journal: Journal, entry: JournalEntry, clock: Clock | None) -> None:
    """Write down that a change was undone. Raises ``DiskFull`` and ``ConfigError``, which say that it was."""
    told = f"{entry.topic} is as it was before; only that could not be noted, so it still counts as changed here."
    with written_to(journal.path(entry.topic), told):
        journal.mark_rolled_back(entry, (clock or SystemClock()).now_ms())


def require_unchanged(name: str, entry: JournalEntry, overrides: Mapping[str, str | None]) -> None:
    """Raise ``ConfigError`` unless ``overrides`` still are what ``entry`` set, or what stood there before it."""
    drifted = [
        f"{setting} (set to {value if value is not None else 'inherit'}, now {overrides.get(setting)})"
        for setting, value in sorted(entry.changes.items())
        if not any(same_value(overrides.get(setting), known) for known in (value, entry.before[setting]))
    ]
    if drifted:
        raise ConfigError(
            f"{', '.join(drifted)} of {name} changed since it was applied; rolling back would undo that too.",
            action="Look at the settings in force; --force rolls back regardless.",
            topic=name,
        )


def require_accepted(applied: Applied) -> None:
    """Raise ``BrokerRefused`` when the broker would refuse a part of a rollback."""
    if applied.refused:
        raise BrokerRefused(
            f"Nothing was changed. {' '.join(applied.refused.values())}",
            action="Set the values by hand to what this broker allows.",
            topic=applied.topic,
            refused=applied.refused,
        )
