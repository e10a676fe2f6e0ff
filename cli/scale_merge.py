"""`stateflow scale merge`: take another application's state into this one, merged key by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import click

from stateflow.cli.application import connected, topology_of
from stateflow.cli.options import brokers_override, dry_run_option, json_option
from stateflow.cli.output import emit_json, emit_table
from stateflow.cli.scale_text import RepartitionProgress, outcome_data, print_outcome
from stateflow.cli.target import chosen
from stateflow.clock import SystemClock
from stateflow.scale import generation as generations
from stateflow.scale.application_merge import ApplicationMerge, StoreOverlap, preview, refuse_undefined
from stateflow.scale.engine import InProcess
from stateflow.scale.start import start
from stateflow.state.merging import MergeFor

LANES = 2


@click.command()
@click.argument("target", metavar="[APP]", required=False)
@click.option(
    "--app", "app_id", metavar="ID", help="The application's id, where no merge function is needed."
)
@click.option("--from", "other", metavar="ID", required=True, help="The application whose state is taken in.")
@brokers_override
@dry_run_option
@json_option
def merge(
    target: str | None, app_id: str | None, other: str, brokers: str | None, dry_run: bool, as_json: bool
) -> None:
    """Merge another application's state into this one, while neither runs.

    Stores of the same name become one; where both hold a key, its type says how the two states are merged. The
    partitions stay as they are. Started again after a failure, it resumes; `scale abort` undoes it until then.
    """
    found = chosen(target, app_id, brokers)
    merges: Mapping[str, MergeFor] = {} if target is None else topology_of(target).merges
    application_merge = ApplicationMerge(other, merges)
    with connected(found.options) as cluster:
        for app in (found.app, other):
            generations.await_stopped(cluster, app)
        catalog = generations.load_catalog(cluster, found.app)
        overlaps = preview(cluster, catalog, application_merge)
        if dry_run:
            _show(found.app, other, overlaps, as_json=as_json)
            return
        refuse_undefined(overlaps)
        outcome = start(
            cluster,
            found.app,
            catalog.active.routing,
            InProcess(cluster, LANES),
            SystemClock(),
            on_progress=RepartitionProgress(),
            application_merge=application_merge,
        )
    if as_json:
        emit_json({**outcome_data(outcome), "merged": other, "stores": [asdict(row) for row in overlaps]})
    else:
        _print(overlaps)
        print_outcome(outcome)


def _show(app: str, other: str, overlaps: Sequence[StoreOverlap], *, as_json: bool) -> None:
    if as_json:
        emit_json({"app": app, "merged": other, "stores": [asdict(row) for row in overlaps]})
    else:
        _print(overlaps)


def _print(overlaps: Sequence[StoreOverlap]) -> None:
    rows = [
        [row.store, row.keys_theirs, row.keys_both, "yes" if row.is_defined else "NO"] for row in overlaps
    ]
    emit_table(["store", "their keys", "of them merged", "can be merged"], rows)
