"""A recommendation in ten lines: what to set, what that does, what it costs, and what would change it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stateflow.compaction.advice.alternatives import BROKER_SETTINGS
from stateflow.compaction.advice.explain import CHEAPER_THAN_HAND
from stateflow.compaction.advice.recommendation import Outcome, Recommendation
from stateflow.compaction.advice.side_effects import SideEffects
from stateflow.compaction.sensing.effect import cautions
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.units import cores, duration, size, with_unit

LINES_MAX = 10
_CAUTIONS_SHOWN = 2
_ALTERNATIVES_SHOWN = 3
_NAME_WIDTH = 9


@dataclass(frozen=True, slots=True)
class Advice:
    """One topic as measured, what is recommended for it, and what that does beside."""

    measured: Measurement
    found: Recommendation
    effects: SideEffects


def brief(advice: Advice) -> list[str]:
    """At most ``LINES_MAX`` lines about one topic."""
    found, measured = advice.found, advice.measured
    told = [_verdict(advice), _line("now", _outcome(found.current))]
    if found.reachable and not found.changes:
        told += [_line("costs", _costs(advice))]
    elif found.reachable:
        told += [
            _line("set", " ".join(f"{name}={value}" for name, value in _changes(found))),
            _line("gives", _outcome(found.best)),
            _line("costs", _costs(advice)),
        ]
    else:
        told += [_line("closest", _closest(found)), *_others(found)]
    if found.reachable and found.limits:
        told.append(_line("limits", " ".join(found.limits)))
    warned = cautions(measured)
    told += [_line("caution", sentence) for sentence in warned[:_CAUTIONS_SHOWN]]
    if advice.effects.illegal_later and found.reachable:
        told.append(_line("later", f"illegal from Kafka 5 on: {', '.join(advice.effects.illegal_later)}"))
    hidden = len(warned) - _CAUTIONS_SHOWN
    more = f" and {hidden} more caution(s)" if hidden > 0 else ""
    told.append(_line("-v", f"reasons, side effects, what keeps it safe, other ways{more}"))
    assert len(told) <= LINES_MAX, "a brief is brief"
    return told


def summary(advices: Sequence[Advice], within_seconds: float) -> Iterator[list[str]]:
    """Rows of an application's table: each changelog, then all together as one restorer takes them in turn."""
    for one in advices:
        found = one.found
        yield [
            found.topic,
            size(found.current.size_max_bytes),
            size(found.best.size_max_bytes),
            duration(found.current.restore_seconds),
            duration(found.best.restore_seconds),
            cores(found.current.cleaner_cores + found.current.roll_cores),
            cores(found.best.cleaner_cores + found.best.roll_cores),
            "yes" if found.reachable else "no",
        ]
    now, then = ([getattr(one.found, name) for one in advices] for name in ("current", "best"))
    together = sum(one.restore_seconds for one in then)
    yield [
        "all",
        size(sum(one.size_max_bytes for one in now)),
        size(sum(one.size_max_bytes for one in then)),
        duration(sum(one.restore_seconds for one in now)),
        f"{duration(together)} of {duration(within_seconds)}",
        cores(sum(one.cleaner_cores + one.roll_cores for one in now)),
        cores(sum(one.cleaner_cores + one.roll_cores for one in then)),
        "yes" if all(one.found.reachable for one in advices) else "no",
    ]


SUMMARY_HEADER = (
    "changelog",
    "log now",
    "then",
    "restore now",
    "then",
    "CPU now",
    "then",
    "holds",
)


def details(advice: Advice) -> list[str]:
    """What ``-v`` adds: everything that was reasoned, a sentence a line."""
    found = advice.found
    told = [f"why: {sentence}" for sentence in found.reasons]
    told += [f"beside: {sentence}" for sentence in advice.effects.sentences()]
    told += [f"safe: {sentence}" for sentence in found.guards]
    if found.runner_up is not None:
        told.append(f"runner-up: {_policy(found.runner_up)}: {_outcome(found.runner_up)}")
    told.append(
        "trade-off (restore time: cleaner and roll CPU): "
        + ", ".join(f"{duration(point.restore_seconds)}: {cores(point.cores)}" for point in found.curve)
    )
    told += [
        f"or: {one.name} ({_meets(one.meets)}, {duration(one.restore_seconds)}): {one.action}; {one.note}"
        for one in found.alternatives
    ]
    told += [f"caution: {sentence}" for sentence in cautions(advice.measured)[_CAUTIONS_SHOWN:]]
    told += [f"note: {sentence}" for sentence in found.unknown]
    return told


def _verdict(advice: Advice) -> str:
    found = advice.found
    objective = found.objective
    wanted = f"{found.topic}: restore within {duration(objective.restore_within_seconds)}"
    if objective.disk_bytes_max is not None:
        wanted += f" on at most {size(objective.disk_bytes_max)} of disk"
    if objective.cpu_cores_max is not None:
        wanted += f" for at most {cores(objective.cpu_cores_max)} of a core"
    if not found.reachable:
        return f"{wanted}: compaction alone cannot meet it; the closest is shown"
    if not advice.measured.writes_seen:
        later = "" if advice.found.changes else ", and the settings in force do"
        return f"{wanted}: holds once records arrive{later}; nobody writes now"
    return f"{wanted}: {'holds when set so' if found.changes else 'holds as it is set now'}"


def _outcome(outcome: Outcome) -> str:
    span = f"{duration(outcome.restore_seconds_low)} … {duration(outcome.restore_seconds_high)}"
    if outcome.restore_seconds_low == float("inf"):
        return "never cleaned: the log grows without bound"
    return (
        f"log up to {size(outcome.size_max_bytes)}, restore up to {duration(outcome.restore_seconds)} ({span}), "
        f"a pass every {duration(outcome.cycle_seconds)}, CPU {cores(outcome.cleaner_cores + outcome.roll_cores)}"
    )


def _closest(found: Recommendation) -> str:
    """With what it comes to when load grows as far as it may: at the measured one it may well be in time."""
    best, wanted = found.best, found.objective
    text = _outcome(best)
    if not math.isfinite(best.restore_seconds_stressed):
        return text
    higher = f"{wanted.rate_headroom:g} times the rate and {wanted.live_headroom:g} times the keys"
    return f"{text}; with {higher} {duration(best.restore_seconds_stressed)}, and {cores(wanted.margin)} is kept free"


def _costs(advice: Advice) -> str:
    best, replication = advice.found.best, advice.measured.replication
    low = cores(best.cleaner_cores_low + best.roll_cores)
    high = cores(best.cleaner_cores_high + best.roll_cores)
    text = f"{cores(best.cleaner_cores + best.roll_cores)} ({low} … {high}) of a core"
    if replication > 1:
        text += f" on each of {replication} replicas"
    if best.cores_at_most is not None:
        text += f", at most {cores(best.cores_at_most)} on a busy machine"
    if (share := advice.found.hand_share) is not None:
        saved = share < CHEAPER_THAN_HAND
        text += (
            f", {cores(share)} of the best setting by hand"
            if saved
            else ", no less than the best setting by hand"
        )
    text += _by_broker_settings(advice.found)
    then = advice.effects.then
    if then is None:
        return text
    before = "growing" if advice.effects.now is None else f"{advice.effects.now.files:,.0f}"
    text += f"; files {before} → {then.files:,.0f}"
    around = advice.effects.neighbours
    if around is not None and around.topics:
        text += f"; {cores(then.busy)} of the cleaner's time, shared with {around.topics:,} other topic(s)"
    return text


def _by_broker_settings(found: Recommendation) -> str:
    """What cleaner settings save beside; plainly, where neither they nor topic settings do."""
    others = [one for one in found.alternatives if one.name == BROKER_SETTINGS]
    if found.reachable and others and others[0].cleaner_cores is not None:
        return f", {cores(others[0].cleaner_cores)} with --broker-settings"
    by_hand = found.hand_share
    nothing = found.alternatives and by_hand is not None and by_hand >= CHEAPER_THAN_HAND
    return ", and the broker's cleaner settings would save little" if nothing else ""


def _others(found: Recommendation) -> list[str]:
    """What does meet the objective, soonest possible first; what does not only where nothing does."""
    ordered = sorted(found.alternatives, key=lambda one: not one.meets)
    meeting = [one for one in ordered if one.meets] or ordered
    return [
        _line("or", f"{one.name} ({_meets(one.meets)}, {duration(one.restore_seconds)}): {one.action}")
        for one in meeting[:_ALTERNATIVES_SHOWN]
    ]


def _changes(found: Recommendation) -> Iterator[tuple[str, str]]:
    for name, value in sorted(found.changes.items()):
        yield name, with_unit(name, value)


def _policy(outcome: Outcome) -> str:
    policy = outcome.policy.to_config()
    names = ("segment.ms", "segment.bytes", "min.cleanable.dirty.ratio")
    return " ".join(f"{name}={with_unit(name, policy[name])}" for name in names)


def _meets(meets: bool) -> str:
    return "meets it" if meets else "does not meet it"


def _line(name: str, text: str) -> str:
    return f"  {name:<{_NAME_WIDTH}}{text}"
