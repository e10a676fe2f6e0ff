"""What `stateflow compaction` prints for people."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import click

from stateflow.cli.compaction_brief import SUMMARY_HEADER, Advice, brief, details, summary
from stateflow.cli.output import emit_pairs, emit_table
from stateflow.compaction.calibration.fit import Calibration
from stateflow.compaction.control.change import Applied
from stateflow.compaction.control.cleaned import Cleaned
from stateflow.compaction.control.size_wait import SizeWait
from stateflow.compaction.control.watch import Decision
from stateflow.compaction.model.closed_form import Prediction
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.workload import RestoreRate
from stateflow.compaction.sensing.cleaner_metrics import CleanerEstimate
from stateflow.compaction.sensing.effect import cautions, require_effect
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.topic_settings import Policy
from stateflow.compaction.settings.units import cores, duration, size, with_unit
from stateflow.errors import ConfigError


def print_measurement(found: Measurement, *, verbose: bool = False) -> None:
    """One topic as measured; ``verbose`` says also what is known less well, and of which broker."""
    policy = found.policy
    pairs = [
        ("topic", f"{found.topic}, {found.partitions} partitions × {found.replication}"),
        (
            "log",
            f"{size(found.size_bytes)} now, {found.records:,} records, {found.dirty_share:.0%} superseded",
        ),
        (
            "live keys",
            f"{found.live_keys:,}" + (f", and {found.tombstones:,} tombstones" if found.tombstones else ""),
        ),
        ("updates", f"{found.updates_per_second:,.1f}/s ({found.rate_source})"),
        (
            "restore",
            f"{duration(found.restore.seconds(found.records))} by one restorer: "
            f"{found.restore.told(found.records)} ({found.restore.source})",
        ),
        ("cleaner", _cleaner(found)),
        ("by exporter", None if found.cleaner_estimate is None else _estimated(found.cleaner_estimate)),
        (
            "policy",
            f"segments of {duration(policy.segment_ms / 1000)} or {size(policy.segment_bytes)}, "
            f"dirty ratio {policy.dirty_ratio:g}",
        ),
    ]
    emit_pairs([*pairs, *(_measured_closer(found) if verbose else ())])
    try:
        require_effect(found)
    except ConfigError as error:
        click.echo(f"warning: {error.message} {error.action}")
    for sentence in cautions(found):
        click.echo(f"caution: {sentence}")
    for sentence in found.unknown if verbose else ():
        click.echo(f"note: {sentence}")


def _measured_closer(found: Measurement) -> list[tuple[str, object]]:
    sizes = [sample.size_bytes for sample in found.sizes]
    return [
        ("broker", f"Kafka {found.broker_version[0]}.{found.broker_version[1]}"),
        ("as appended", f"{found.record_bytes:.0f} bytes per record"),
        ("watched", f"{size(min(sizes))} … {size(max(sizes))}" if sizes else None),
        ("transactions", "yes" if found.transactional else "no"),
        *found.policy.to_config().items(),
    ]


def _cleaner(found: Measurement) -> str:
    seen = "" if found.cleaner_cores is None else f", {cores(found.cleaner_cores)} of a core for all topics"
    return f"{found.cleaner.threads} thread(s), looks every {duration(found.cleaner.backoff_ms / 1000)}{seen}"


def _estimated(cleaner: CleanerEstimate) -> str:
    return (
        f"{cleaner.cores:.2%} ({cleaner.low:.2%} … {cleaner.high:.2%}) of a core, "
        f"{size(cleaner.moved_bytes_per_second)}/s moved"
    )


def print_advice(advices: Sequence[Advice], *, together: bool, verbose: bool) -> None:
    """What is recommended: an application's changelogs as a table, a topic in ten lines; ``verbose`` says all."""
    shared = together and len(advices) > 1
    if shared:
        emit_table(SUMMARY_HEADER, list(summary(advices, _whole_seconds(advices))))
        for one in advices:
            for sentence in () if verbose else cautions(one.measured):
                click.echo(f"{one.found.topic}: {sentence}")
        if not verbose:
            click.echo("what is set, what it costs and why: -v, or --topic for one of them")
    for one in advices if verbose or not shared else ():
        for line in brief(one):
            click.echo(line)
        for line in details(one) if verbose else ():
            click.echo(f"  - {line}")


def _whole_seconds(advices: Sequence[Advice]) -> float:
    """The restore time that an application's changelogs share."""
    return sum(one.found.objective.restore_within_seconds for one in advices)


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


def print_size_wait(waited: SizeWait) -> None:
    """How the log shrank."""
    before, after = size(waited.bytes_before), size(waited.bytes_after)
    click.echo(f"{waited.topic}: {before} -> {after} in {waited.seconds:.1f} s. {waited.why}".rstrip())


def print_cleaned(cleaned: Cleaned) -> None:
    """Where the cleaner was, and what that did."""
    before, after = size(cleaned.bytes_before), size(cleaned.bytes_after)
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
            (
                "policy",
                " ".join(f"{name}={with_unit(name, value)}" for name, value in policy.to_config().items()),
            ),
            (
                "log",
                f"{size(outcome.size_mean_bytes)} on average, {size(outcome.size_max_bytes)} at most",
            ),
            ("on disk", f"{size(outcome.disk_max_bytes)} at most, replaced files included"),
            ("restore", f"{duration(restore.seconds(outcome.records_max))} at the peak, one restorer"),
            ("a pass every", f"{duration(outcome.cycle_seconds)}, {outcome.segments_per_cycle} segment(s)"),
            (
                "cleaner CPU",
                f"{cores(outcome.cleaner_cores)} of a core, right to a factor of {factor:g} (costs: "
                f"{costs.source})",
            ),
            ("roll CPU", f"{cores(outcome.roll_cores)} of a core"),
            ("saturated", "yes: the cleaner threads cannot keep up" if outcome.saturated else None),
        ]
    )


def print_calibration(found: Calibration, kept: Path | None, *, verbose: bool) -> None:
    """What cleaning costs on this broker, in a few lines; ``verbose`` says each cost and each run."""
    costs, errors = found.costs, [abs(error) for error in found.errors.values()]
    told = costs.told(found.cleaner)
    emit_pairs(
        [
            *(told if verbose else told[:2]),
            ("beside default costs", f"{found.beside_defaults:.2f} times the CPU, at this machine's pace"),
            ("the runs are off by", f"{statistics.fmean(errors):.0%} on average, {max(errors):.0%} at most"),
            *([(name, f"{error:+.1%}") for name, error in found.errors.items()] if verbose else []),
            ("kept in", kept),
        ]
    )
    for sentence in found.doubts:
        click.echo(f"caution: {sentence}")


def print_decision(topic: str, decision: Decision) -> None:
    """One look of the closed loop."""
    changes = " ".join(
        f"{name}={with_unit(name, value or '')}" for name, value in sorted(decision.changes.items())
    )
    state = f"{size(decision.size_bytes)}, {decision.updates_per_second:,.0f}/s"
    restore = duration(decision.restore_seconds)
    click.echo(
        f"{topic}: {state}, restore {restore}: {decision.action}. {decision.reason} {changes}".rstrip()
    )
