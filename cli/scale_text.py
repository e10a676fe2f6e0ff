"""What `stateflow scale` prints for people, and the same as JSON-ready data."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import msgspec

from stateflow.catalog.model import Catalog, GenerationEntry
from stateflow.checkpoint.progress import ProgressLine
from stateflow.cli.output import emit_pairs, emit_table, human_bytes
from stateflow.scale.plan import Plan
from stateflow.scale.prediction import Prediction
from stateflow.scale.progress import Progress
from stateflow.scale.start import Outcome

_BAR_WIDTH = 30


def plan_data(plan: Plan) -> dict[str, Any]:
    """A plan."""
    return {
        "app": plan.app,
        "generation_from": plan.generation_from,
        "generation_to": plan.generation_to,
        "partitions_from": plan.routing_from.partitions,
        "partitions_to": plan.routing_to.partitions,
        "resumes": plan.resumes,
        "slots_total": plan.slots_total,
        "bytes_total": plan.bytes_total,
        "predicted": prediction_data(plan.prediction),
        "partitions": [
            {
                "name": row.name,
                "topic": row.source.topic,
                "partition": row.source.partition,
                "offset_first": row.offsets.offset_first,
                "offset_next": row.offsets.offset_next,
                "bytes": row.bytes_estimated,
                "keys": row.keys,
            }
            for row in plan.partitions
        ],
    }


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    """A finished repartition."""
    left_out = ("audit", "work", "prediction")
    return {
        **{name: value for name, value in asdict(outcome).items() if name not in left_out},
        "records_per_second": outcome.records_per_second,
        "predicted": prediction_data(outcome.prediction),
        "audit": msgspec.to_builtins(outcome.audit),
    }


def prediction_data(prediction: Prediction) -> dict[str, Any]:
    """How long it is, or was, thought to take."""
    return {
        "seconds_low": round(prediction.total.low, 1),
        "seconds_high": round(prediction.total.high, 1),
        "phases": {
            phase: [round(span.low, 1), round(span.high, 1)] for phase, span in prediction.phases.items()
        },
        "rests_on": prediction.rests_on,
    }


def predicted_text(prediction: Prediction) -> str:
    """The range, for people."""
    return f"{human_seconds(prediction.total.low)} to {human_seconds(prediction.total.high)}"


def human_seconds(seconds: float) -> str:
    """`7 s`, `4 min`, `2.5 h`: a prediction has no more digits than that."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def print_plan(plan: Plan) -> None:
    """A plan, with a row for every partition to be read."""
    resumed = " (resumed)" if plan.resumes else ""
    emit_pairs(
        [
            ("application", plan.app),
            ("generation", f"{plan.generation_from} → {plan.generation_to}{resumed}"),
            ("partitions", f"{plan.routing_from.partitions} → {plan.routing_to.partitions}"),
            ("to read", f"{plan.slots_total:,} offset slots, about {human_bytes(plan.bytes_total)}"),
            ("predicted", predicted_text(plan.prediction)),
            ("by", plan.prediction.rests_on),
        ]
    )
    emit_table(
        ["moves", "topic", "partition", "slots", "bytes", "keys"],
        [
            [
                row.name,
                row.source.topic,
                row.source.partition,
                row.offsets.slots,
                human_bytes(row.bytes_estimated),
                "–" if row.keys is None else row.keys,
            ]
            for row in plan.partitions
        ],
    )


def print_outcome(outcome: Outcome) -> None:
    """A finished repartition, the audit first."""
    emit_table(
        ["store", "partition", "keys before", "keys after", "equal"],
        [
            [row.store, row.partition, row.keys_before, row.keys_after, "yes" if row.equal else "NO"]
            for row in outcome.audit
        ],
    )
    emit_pairs(
        [
            ("application", outcome.app),
            ("generation", f"{outcome.generation_from} → {outcome.generation_to} (active)"),
            ("partitions", f"{outcome.partitions_from} → {outcome.partitions_to}"),
            ("kept", f"{outcome.keys_total:,} keys and {outcome.unread_total:,} unread records"),
            ("moved", f"{outcome.records_read_total:,} records in {outcome.seconds_moving:.1f} s"),
            ("audited", f"{len(outcome.audit)} ranges, all equal, in {outcome.seconds_auditing:.1f} s"),
            ("in all", f"{outcome.seconds_total:.1f} s; {predicted_text(outcome.prediction)} were predicted"),
            ("next", "start the workers; `stateflow scale finalize` then deletes the old topics"),
        ]
    )


def print_generations(catalog: Catalog, workers: int) -> None:
    """All generations of an application."""
    emit_pairs([("application", catalog.app.app), ("workers", workers)])
    rows = sorted(catalog.generations.values(), key=lambda entry: entry.generation)
    emit_table(
        ["generation", "state", "partitions", "routing", "topics", "audit"],
        [
            [
                row.generation,
                row.state,
                row.partitions,
                row.routing.kind,
                len(row.topic_ids),
                _audit_text(row),
            ]
            for row in rows
        ],
    )


def _audit_text(entry: GenerationEntry) -> str:
    if not entry.audit:
        return "–"
    return f"{sum(row.equal for row in entry.audit)} of {len(entry.audit)} ranges equal"


class RepartitionProgress:
    """How far a repartition is, on stderr: of its steps one after the other, the end of each in a line that stays."""

    def __init__(self) -> None:
        self._line = ProgressLine()

    def __call__(self, progress: Progress) -> None:
        """Show it; a finished step always."""
        if progress.slots_done >= progress.slots_total:
            self._line.finish(_bar(progress))
        else:
            self._line.update(time.monotonic(), lambda: _bar(progress))


def _bar(progress: Progress) -> str:
    share = progress.slots_done / progress.slots_total if progress.slots_total else 1.0
    filled = round(share * _BAR_WIDTH)
    eta = f", {progress.eta_seconds:.0f} s left" if progress.eta_seconds else ""
    written = f", {progress.records_written_total:,} written" if progress.step == "moving" else ""
    return (
        f"{progress.step} [{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {share:4.0%}"
        f" {progress.records_read_total:,} records read{written}, {progress.rate:,.0f}/s{eta}"
    )
