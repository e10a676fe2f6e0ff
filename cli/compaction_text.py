"""What `stateflow compaction` prints for people."""

from __future__ import annotations

import math

import click

from stateflow.cli.output import emit_pairs, emit_table, human_bytes
from stateflow.compaction.advice.recommendation import Outcome, Recommendation
from stateflow.compaction.control.change import Applied
from stateflow.compaction.control.cleaned import Cleaned
from stateflow.compaction.control.settle import Settled
from stateflow.compaction.control.watch import Decision
from stateflow.compaction.model.closed_form import Prediction
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.workload import RestoreRate
from stateflow.compaction.sensing.cleaner_metrics import CleanerEstimate
from stateflow.compaction.sensing.effect import cautions, require_effect
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.topic_settings import Policy
from stateflow.errors import ConfigError


def _bytes(size: float) -> str:
    return human_bytes(size) if math.isfinite(size) else "unbounded"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if math.isfinite(seconds) else "unbounded"


def print_measurement(found: Measurement) -> None:
    """One topic as measured."""
    sizes = [sample.size_bytes for sample in found.sizes]
    policy = found.policy
    emit_pairs(
        [
            ("topic", f"{found.topic}, {found.partitions} partitions × {found.replication}"),
            ("broker", f"Kafka {found.broker_version[0]}.{found.broker_version[1]}"),
            (
                "log",
                f"{human_bytes(found.size_bytes)} now, {found.records:,} records of "
                f"{found.record_bytes:.0f} bytes as appended",
            ),
            ("watched", f"{human_bytes(min(sizes))} … {human_bytes(max(sizes))}" if sizes else None),
            (
                "live keys",
                f"{found.live_keys:,}"
                + (f", and {found.tombstones:,} tombstones" if found.tombstones else ""),
            ),
            ("superseded", f"{found.dirty_share:.0%} of the records"),
            ("updates", f"{found.updates_per_second:,.1f}/s ({found.rate_source})"),
            ("transactions", "yes" if found.transactional else "no"),
            ("restore", f"{found.restore.records_per_second:,.0f} records/s ({found.restore.source})"),
            (
                "cleaner CPU",
                None if found.cleaner_cores is None else f"{found.cleaner_cores:.2%} of a core, all topics",
            ),
            ("by exporter", None if found.cleaner_estimate is None else _estimated(found.cleaner_estimate)),
            (
                "policy",
                f"segment.ms={policy.segment_ms} segment.bytes={policy.segment_bytes} dirty "
                f"ratio={policy.dirty_ratio}",
            ),
            ("cleaner", f"{found.cleaner.threads} thread(s), looks every {found.cleaner.backoff_ms} ms"),
        ]
    )
    try:
        require_effect(found)
    except ConfigError as error:
        click.echo(f"warning: {error.message} {error.action}")
    for sentence in cautions(found):
        click.echo(f"caution: {sentence}")
    for sentence in found.unknown:
        click.echo(f"note: {sentence}")


def _estimated(cleaner: CleanerEstimate) -> str:
    return (
        f"{cleaner.cores:.2%} ({cleaner.low:.2%} … {cleaner.high:.2%}) of a core, "
        f"{human_bytes(cleaner.moved_bytes_per_second)}/s moved"
    )


def _row(name: str, outcome: Outcome) -> list[object]:
    return [
        name,
        outcome.policy.segment_ms,
        human_bytes(outcome.policy.segment_bytes),
        f"{outcome.policy.dirty_ratio:g}",
        _bytes(outcome.size_max_bytes),
        f"{_seconds(outcome.restore_seconds)} ({_seconds(outcome.restore_seconds_low)} … "
        f"{_seconds(outcome.restore_seconds_high)})",
        f"{outcome.cleaner_cores:.2%} ({outcome.cleaner_cores_low:.2%} … {outcome.cleaner_cores_high:.2%})",
        f"{outcome.roll_cores:.2%}",
        "yes" if outcome.meets else "no",
    ]


def print_recommendation(found: Recommendation, measured: Measurement) -> None:
    """A recommendation with its reasons, guards, limits and alternatives."""
    verdict = "" if found.reachable else ": compaction alone cannot meet it; the closest is shown"
    click.echo(f"{found.topic}: restore within {found.objective.restore_within_seconds:g} s{verdict}")
    for sentence in cautions(measured):
        click.echo(f"caution: {sentence}")
    rows = [_row("now", found.current), _row("recommended" if found.reachable else "closest", found.best)]
    rows += [_row("runner-up", found.runner_up)] if found.runner_up else []
    emit_table(
        [
            "policy",
            "segment.ms",
            "segment.bytes",
            "dirty ratio",
            "log at most",
            "restore",
            "cleaner CPU",
            "roll CPU",
            "holds",
        ],
        rows,
    )
    for sentence in (*found.reasons, *found.guards, *found.limits):
        click.echo(f"- {sentence}")
    if found.changes:
        click.echo("set: " + " ".join(f"{name}={value}" for name, value in sorted(found.changes.items())))
    else:
        click.echo("set: nothing, the policy in force is the best")
    click.echo(
        "trade-off (restore time: cleaner and roll CPU): "
        + ", ".join(f"{point.restore_seconds:.3g} s: {point.cores:.2%}" for point in found.curve)
    )
    for other in found.alternatives:
        mark = "meets it" if other.meets else "does not meet it"
        click.echo(f"or: {other.name} ({mark}, {other.restore_seconds:.3g} s): {other.action}; {other.note}")
    for sentence in found.unknown:
        click.echo(f"note: {sentence}")


def print_applied(applied: Applied) -> None:
    """A change, made or only planned."""
    click.echo(
        f"{applied.topic}: {'would change' if applied.dry_run else 'changed'} {len(applied.changes)} "
        f"setting(s)"
    )
    for line in applied.diff():
        click.echo(f"  {line}")
    for name, why in applied.refused.items():
        click.echo(f"  the broker refuses {name}: {why}")


def print_settled(settled: Settled) -> None:
    """How the log shrank."""
    before, after = human_bytes(settled.bytes_before), human_bytes(settled.bytes_after)
    click.echo(f"{settled.topic}: {before} -> {after} in {settled.seconds:.1f} s. {settled.why}".rstrip())


def print_cleaned(cleaned: Cleaned) -> None:
    """Where the cleaner was, and what that did."""
    before, after = human_bytes(cleaned.bytes_before), human_bytes(cleaned.bytes_after)
    click.echo(
        f"{cleaned.topic}: the cleaner was in {cleaned.partitions_cleaned} of {cleaned.partitions} partitions "
        f"within {cleaned.seconds:.1f} s, {before} -> {after}. {cleaned.why}".rstrip()
    )


def print_prediction(
    topic: str, policy: Policy, outcome: Prediction, restore: RestoreRate, costs: Costs
) -> None:
    """What the closed form says of a topic under a policy."""
    factor = costs.uncertainty_factor
    emit_pairs(
        [
            ("topic", topic),
            ("policy", " ".join(f"{name}={value}" for name, value in policy.to_config().items())),
            (
                "log",
                f"{_bytes(outcome.size_mean_bytes)} on average, {_bytes(outcome.size_max_bytes)} at most",
            ),
            ("on disk", f"{_bytes(outcome.disk_max_bytes)} at most, replaced files included"),
            ("restore", f"{_seconds(restore.seconds(outcome.records_max))} at the peak, one restorer"),
            ("a pass every", f"{_seconds(outcome.cycle_seconds)}, {outcome.segments_per_cycle} segment(s)"),
            (
                "cleaner CPU",
                f"{outcome.cleaner_cores:.2%} of a core, right to a factor of {factor:g} (costs: "
                f"{costs.source})",
            ),
            ("roll CPU", f"{outcome.roll_cores:.2%} of a core"),
            ("saturated", "yes: the cleaner threads cannot keep up" if outcome.saturated else None),
        ]
    )


def print_decision(topic: str, decision: Decision) -> None:
    """One look of the closed loop."""
    changes = " ".join(f"{name}={value}" for name, value in sorted(decision.changes.items()))
    state = f"{human_bytes(decision.size_bytes)}, {decision.updates_per_second:,.0f}/s"
    restore = _seconds(decision.restore_seconds)
    click.echo(
        f"{topic}: {state}, restore {restore}: {decision.action}. {decision.reason} {changes}".rstrip()
    )
