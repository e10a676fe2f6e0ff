"""`stateflow compaction`: measure a compacted topic, predict, recommend, report, calibrate; see also
:mod:`stateflow.cli.compaction_change`.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from stateflow.cli.compaction_change import apply_command, rollback_command, watch_command
from stateflow.cli.compaction_session import (
    Session,
    advice_data,
    advise,
    cluster_options,
    measure_options,
    objective_options,
    recommendations,
    saved_option,
    session,
    topic_options,
    verbose_option,
)
from stateflow.cli.compaction_text import (
    print_advice,
    print_calibration,
    print_measurement,
    print_prediction,
)
from stateflow.cli.options import Duration, OutputFile, dry_run_option, json_lines_option, json_option
from stateflow.cli.output import emit_json, emit_pairs
from stateflow.compaction.calibration.calibrate import (
    VALUE_BYTES,
    calibrate,
    calibration_cells,
    checked_cleaner,
    save,
)
from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.control.change import require_reachable
from stateflow.compaction.control.kept_files import require_writable, written_to
from stateflow.compaction.model.closed_form import predict
from stateflow.compaction.pages.topic_page import topic_page
from stateflow.compaction.sensing.effect import cautions, require_effect
from stateflow.compaction.settings.knobs import check, knobs_for
from stateflow.compaction.settings.topic_settings import Policy
from stateflow.errors import CalibrationDoubtful, ConfigError, ObjectiveUnreachable
from stateflow.output_places import writing


@click.group()
def command() -> None:
    """Measure changelogs, and tune how Kafka compacts them."""


@command.command("measure")
@topic_options
@measure_options
@verbose_option
@json_lines_option
def measure_command(
    topics: tuple[str, ...],
    app_id: str | None,
    brokers: str,
    client_config: Path | None,
    as_json: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Measure topics: size, keys, update rate, restore rate, cleaner CPU. Changes nothing."""
    with session(brokers, client_config, app_id) as opened:
        for topic in opened.topics(topics, app_id):
            found = opened.measure(topic, options)
            if as_json:
                emit_json({**found.to_data(), "cautions": list(cautions(found))})
            else:
                print_measurement(found, verbose=verbose)


@command.command("calibrate")
@cluster_options
@click.option(
    "--seconds",
    type=Duration(is_above_zero=True),
    default=6.0,
    show_default=True,
    help="Length of each of nine runs.",
)
@click.option(
    "--vary-buffer",
    is_flag=True,
    help="Most runs with a small dedupe buffer, and looks often enough to see passes: tells better what one costs, "
    "but restarts the cleaner threads. Needed where the backoff is Kafka's own.",
)
@click.option(
    "--keep", is_flag=True, help="Keep it, and predict with it, also where something speaks against it."
)
@click.option("-v", "--verbose", is_flag=True, help="Every cost, and how far each run is off.")
@dry_run_option
@json_option
def calibrate_command(
    brokers: str,
    client_config: Path | None,
    seconds: float,
    vary_buffer: bool,
    keep: bool,
    verbose: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Learn what compaction costs on a local broker, on scratch topics, and keep it for later predictions."""
    with session(brokers, client_config) as opened:
        if dry_run:
            _show_runs(opened, seconds, vary_buffer=vary_buffer, as_json=as_json)
            return
        require_writable(opened.calibration_path, "Nothing was measured, as it could not be kept.")
        second = ClusterAdmin(opened.brokers, opened.settings)
        try:
            found = calibrate(
                opened.cluster,
                opened.admin,
                second,
                seconds=seconds,
                vary_buffer=vary_buffer,
                progress=lambda text: click.echo(text, err=True),
            )
        finally:
            second.close()
        kept = opened.calibration_path if keep or not found.doubts else None
        if kept is not None:
            with written_to(kept, "These costs are not kept: predictions go on as before."):
                save(found, kept)
        if as_json:
            emit_json({**asdict(found), "doubts": found.doubts, "path": None if kept is None else str(kept)})
        else:
            print_calibration(found, kept, verbose=verbose)
        if kept is None:
            raise CalibrationDoubtful(
                "These costs are not kept: predictions go on as before.",
                action="Calibrate again on a quieter machine, when the broker has run for some minutes; or add --keep.",
            )


def _show_runs(opened: Session, seconds: float, *, vary_buffer: bool, as_json: bool) -> None:
    """What a calibration would do; what would be refused is refused."""
    checked_cleaner(opened.admin, seconds, vary_buffer=vary_buffer)
    runs = [cell.name for cell in calibration_cells(seconds, VALUE_BYTES)]
    if as_json:
        path = str(opened.calibration_path)
        emit_json(
            {"dry_run": True, "runs": runs, "seconds": seconds, "vary_buffer": vary_buffer, "path": path}
        )
        return
    emit_pairs(
        [
            (
                "would run",
                f"{', '.join(runs)}; each {seconds:g} s or more, on a scratch topic that is deleted",
            ),
            (
                "would set",
                "the dedupe buffer and backoff of the broker, and put them back" if vary_buffer else None,
            ),
            ("would keep", f"the costs in {opened.calibration_path}, unless they are doubtful"),
        ]
    )


def _settings(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """What ``--set`` names: settings of a topic, with values that a broker could take."""
    pairs = [text.partition("=") for text in texts]
    unset = [name for name, equals, _ in pairs if not equals]
    if unset:
        raise click.BadParameter(f"{unset[0]!r} is not a setting; write segment.ms=1000.", ctx, param)
    changes = {name: value for name, _, value in pairs}
    try:
        Policy().with_config(changes)
    except ConfigError as error:
        raise click.BadParameter(f"{error.message} {error.action}", ctx, param) from error
    return changes


@command.command("model")
@topic_options
@measure_options
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_settings,
    help="A topic setting to try; repeat it.",
)
@json_lines_option
def model_command(
    topics: tuple[str, ...],
    app_id: str | None,
    brokers: str,
    client_config: Path | None,
    changes: dict[str, str],
    as_json: bool,
    **options: Any,
) -> None:
    """Predict size, restore time and cleaner CPU of topics, as they are or under other settings."""
    with session(brokers, client_config, app_id) as opened:
        chosen = opened.topics(topics, app_id)
        check(changes, knobs_for(opened.admin.version()[0]))
        for topic in chosen:
            found = opened.measure(topic, options)
            require_effect(found)
            policy = found.policy.with_config(changes)
            costs = opened.costs(found)
            outcome = predict(found.workload(), policy, found.cleaner, costs)
            if as_json:
                data = {name: value for name, value in asdict(outcome).items() if value != float("inf")}
                emit_json({"topic": topic, "policy": policy.to_config(), "prediction": data})
            else:
                print_prediction(topic, policy, outcome, found.restore, costs)


@command.command("recommend")
@topic_options
@measure_options
@objective_options
@saved_option
@verbose_option
@json_lines_option
def recommend_command(
    topics: tuple[str, ...],
    app_id: str | None,
    brokers: str,
    client_config: Path | None,
    as_json: bool,
    verbose: bool,
    **options: Any,
) -> int:
    """Say which settings restore a topic in time at the least broker CPU. Changes nothing."""
    with session(brokers, client_config, app_id) as opened:
        measured = opened.measured(opened.topics(topics, app_id), options)
        advices = advise(opened, measured, options, together=app_id is not None)
        if as_json:
            for one in advices:
                emit_json(advice_data(one))
            return 0 if all(one.found.reachable for one in advices) else ObjectiveUnreachable.exit_code
        print_advice(advices, together=app_id is not None, verbose=verbose)
        require_reachable([one.found for one in advices])
        return 0


@command.command("report")
@topic_options
@measure_options
@objective_options
@saved_option
@click.option(
    "--out",
    type=OutputFile(),
    default=Path("compaction.html"),
    show_default=True,
    help="The file to write.",
)
@json_option
def report_command(
    topics: tuple[str, ...],
    app_id: str | None,
    brokers: str,
    client_config: Path | None,
    out: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Write one HTML page about topics: size over time, the trade-off, the recommendation and its reasons."""
    with session(brokers, client_config, app_id) as opened:
        measured = opened.measured(opened.topics(topics, app_id), options)
        found = list(recommendations(opened, measured, options, together=app_id is not None))
    with writing(out, "--out"):
        out.write_text(topic_page(found), encoding="utf-8")
    if as_json:
        told = [{"topic": seen.topic, "reachable": one.reachable} for seen, one in found]
        emit_json({"out": out, "topics": told})
    else:
        click.echo(f"{out}: {len(found)} topic(s)")


for _one in (apply_command, rollback_command, watch_command):
    command.add_command(_one)
