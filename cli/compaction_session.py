"""What the `stateflow compaction` commands share: an open cluster, options, durations, kept calibrations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from stateflow.cli.compaction_brief import Advice
from stateflow.cli.options import (
    Cores,
    Duration,
    Number,
    Size,
    app_id_option,
    brokers_option,
    client_config_option,
    stacked,
)
from stateflow.cli.which_broker import settings_without_code
from stateflow.compaction.advice.objective import DEFAULT_TRANSACTION_TIMEOUT_MS, Objective
from stateflow.compaction.advice.recommendation import Recommendation
from stateflow.compaction.advice.share import shared_objectives
from stateflow.compaction.advice.side_effects import side_effects
from stateflow.compaction.calibration.calibrate import load
from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.cluster.neighbours import neighbours_of
from stateflow.compaction.cluster.which_topics import changelogs_of, role_of
from stateflow.compaction.control.journal import Journal
from stateflow.compaction.control.kept_files import costs_path, found_at
from stateflow.compaction.control.negotiate import recommend_allowed
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.workload import RestoreRate
from stateflow.compaction.sensing.effect import cautions, require_effect_on
from stateflow.compaction.sensing.measure import (
    MeasureOptions,
    leading_cleaner,
    local_broker,
    measure,
    with_settings_in_force,
)
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.cleanup import Cleanup
from stateflow.compaction.settings.providers import PROVIDERS
from stateflow.errors import BrokerRefused, ConfigError
from stateflow.log.client_file import BROKERS, client_settings
from stateflow.log.kafka import KafkaCluster, connect

_GIVEN_RATE_ERROR = 0.1
_PROBE_RECORDS_MAX = 150_000
"""What restores on trial may read of a topic: about a second of CPU."""


@dataclass(frozen=True, slots=True)
class Session:
    """An open cluster: its log, its administration, and the record of changes made to it."""

    brokers: str
    settings: dict[str, object]
    """Of the Kafka client; never shown."""
    cluster: KafkaCluster
    admin: ClusterAdmin
    journal: Journal

    @property
    def calibration_path(self) -> Path:
        """Where the costs of this cluster's brokers are kept once they were calibrated."""
        return costs_path(self.cluster.cluster_id)

    def costs(self, found: Measurement) -> Costs:
        """Calibrated for the cleaner settings that the topic was measured under, else the defaults."""
        return load(found_at(self.calibration_path), found.cleaner, local_broker(self.admin))

    def topics(self, topics: tuple[str, ...], app_id: str | None) -> list[str]:
        """The topics named, and the changelogs of the application named. Raises ``TopicMissing``."""
        chosen = [*topics, *(changelogs_of(self.cluster, app_id) if app_id else ())]
        if not chosen:
            raise ConfigError(
                "No topic was named.", action="Give --topic T (more than once if you like) or --app ID."
            )
        self.admin.partition_counts(
            chosen
        )  # first of all: a topic that is not seen has no settings to be read
        return chosen

    def measured(self, topics: list[str], options: dict[str, Any]) -> list[Measurement]:
        """Each topic measured now, or as it was saved (``--measurement``), with the settings it has now."""
        path = options.get("saved")
        if path is None:
            for topic in topics:
                self._require_effect(topic)
            return [self.measure(topic, options) for topic in topics]
        saved = saved_measurements(path)
        missing = sorted(set(topics) - set(saved))
        if missing:
            raise ConfigError(
                f"{path} holds no measurement of {', '.join(missing)}, but of {', '.join(sorted(saved))}.",
                action="Measure the topic, or name the one that was measured.",
            )
        return [_for_release(with_settings_in_force(self.admin, saved[topic]), options) for topic in topics]

    def _require_effect(self, topic: str) -> None:
        """Refuse a topic on which settings cannot act before it is watched and read."""
        cleanup = Cleanup.from_config(self.admin.topic_config(topic))
        cleaner = leading_cleaner(self.admin, topic).settings
        require_effect_on(topic, cleanup, cleaner, role_of(self.cluster, topic))

    def measure(self, topic: str, options: dict[str, Any]) -> Measurement:
        """Measure one topic as the options say."""
        rate = options["restore_rate"]
        given = None if rate is None else RestoreRate(rate, 0.1, "given", _GIVEN_RATE_ERROR)
        cleaner = leading_cleaner(self.admin, topic).settings
        how = MeasureOptions(
            seconds=options["seconds"],
            updates_per_second=options["rate"],
            restore=given,
            metrics_urls=options["metrics_urls"],
            records_max=options["records_max"],
            probe_records_max=_PROBE_RECORDS_MAX,
            costs=load(found_at(self.calibration_path), cleaner, local_broker(self.admin)),
        )
        found = measure(
            self.cluster,
            topic,
            admin=self.admin,
            options=how,
            progress=lambda text: click.echo(text, err=True),
        )
        return _for_release(found, options)


def _for_release(found: Measurement, options: dict[str, Any]) -> Measurement:
    """As if the brokers were of the release that ``--kafka`` names."""
    release = options.get("kafka")
    return found if release is None else replace(found, broker_version=release, broker_newer_than_known=False)


@contextmanager
def session(brokers: str, client_config: Path | None, app_id: str | None = None) -> Iterator[Session]:
    """Connect, and close at the end. The file's ``bootstrap.servers`` counts where ``--brokers`` was not given."""
    settings = client_settings(client_config, app_id)
    found = settings.pop(BROKERS, None)
    given = click.get_current_context().get_parameter_source("brokers")
    if given in (None, ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP):
        brokers = str(found) if found is not None else settings_without_code(app_id or "").options.brokers
    cluster = connect(brokers, settings)
    admin = ClusterAdmin(brokers, settings)
    try:
        yield Session(brokers, settings, cluster, admin, Journal(cluster.cluster_id))
    finally:
        admin.close()
        cluster.close()


def saved_measurements(path: Path) -> dict[str, Measurement]:
    """What ``measure --json`` printed, by topic. Raises ``ConfigError`` when the file is something else."""
    at, found = 0, list[Measurement]()
    try:
        text = path.read_text(encoding="utf-8")
        while at < len(text.rstrip()):
            at += len(text[at:]) - len(text[at:].lstrip())
            data, at = json.JSONDecoder().raw_decode(text, at)
            found.append(Measurement.from_data(data))
    except (OSError, ValueError, ConfigError) as error:
        why = error.message if isinstance(error, ConfigError) else f"{error}."
        raise ConfigError(
            f"{path} is no measurement: {why}",
            action="Write it with `stateflow compaction measure --json`.",
        ) from error
    if not found:
        raise ConfigError(
            f"{path} is empty.",
            action="Write it with `stateflow compaction measure --json`, whose exit code is 0.",
        )
    return {one.topic: one for one in found}


def recommendations(
    opened: Session, measured: list[Measurement], options: dict[str, Any], *, together: bool
) -> Iterator[tuple[Measurement, Recommendation]]:
    """Recommend for what was measured; ``together`` divides the restore time among the topics."""
    for found, wanted, cost in objectives_of(opened, measured, options, together=together):
        provider = options["provider"]
        yield found, recommend_allowed(opened.admin, found, wanted, costs=cost, provider=provider)


def objectives_of(
    opened: Session, measured: list[Measurement], options: dict[str, Any], *, together: bool
) -> list[tuple[Measurement, Objective, Costs]]:
    """Each topic with what is asked of it and the costs of its broker."""
    costs = [opened.costs(found) for found in measured]
    objective = objective_of(options)
    objectives = shared_objectives(measured, objective, costs) if together else [objective] * len(measured)
    return list(zip(measured, objectives, costs, strict=True))


def advise(
    opened: Session, measured: list[Measurement], options: dict[str, Any], *, together: bool
) -> list[Advice]:
    """Recommend for what was measured, and say what that does beside."""
    try:
        around = neighbours_of(opened.admin, {found.topic for found in measured})
    except BrokerRefused:
        around = None
    return [
        Advice(seen, found, side_effects(seen, found, around))
        for seen, found in recommendations(opened, measured, options, together=together)
    ]


def advice_data(advice: Advice) -> dict[str, Any]:
    """As plain data for JSON: the recommendation, its side effects, and what may keep it from acting as predicted."""
    return {
        **advice.found.to_data(),
        "cautions": list(cautions(advice.measured)),
        "side_effects": {**asdict(advice.effects), "sentences": list(advice.effects.sentences())},
    }


def objective_of(options: dict[str, Any]) -> Objective:
    """The objective in the options of a command."""
    return Objective(
        restore_within_seconds=options["restore_within"],
        restorers=options["restorers"],
        transaction_timeout_ms=round(1000 * options["transaction_timeout"]),
        replay_seconds_max=options["slowest_replay"],
        disk_bytes_max=options["disk"],
        cpu_cores_max=options["cpu"],
    )


class Release(click.ParamType[tuple[int, int]]):
    """A release of Kafka, ``4.3``."""

    name = "release"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """To (major, minor)."""
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"(\d+)(?:\.(\d+))?(?:\.\d+)*", str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no release of Kafka; write for example 5.0.", param, ctx)
        return int(match[1]), int(match[2] or 0)


cluster_options = stacked(brokers_option, client_config_option)
topic_options = stacked(
    click.option("--topic", "topics", multiple=True, help="A compacted topic, ours or not; may be repeated."),
    app_id_option,
    cluster_options,
)
verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Reasons, side effects, guards and other ways."
)
saved_option = click.option(
    "--measurement",
    "saved",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Use a saved `measure --json` of the topics instead of measuring now.",
)
measure_options = stacked(
    click.option(
        "--seconds",
        type=Duration(is_above_zero=True),
        default=5.0,
        show_default=True,
        help="How long to watch the topic.",
    ),
    click.option(
        "--rate", type=Number(), help="Updates per second, when the application is not running now."
    ),
    click.option(
        "--restore-rate",
        type=Number(is_above=True),
        help="Records per second of a real restore; else one is made on trial.",
    ),
    click.option(
        "--records-max",
        type=click.IntRange(1),
        default=1_000_000,
        show_default=True,
        help="Stop reading after the partition that reaches so many records; the others are taken to be alike.",
    ),
    click.option(
        "--metrics-url",
        "metrics_urls",
        multiple=True,
        metavar="URL",
        help="A broker's exporter (http://…/metrics), to see a remote cleaner; one for each broker.",
    ),
)
objective_options = stacked(
    click.option(
        "--restore-within",
        type=Duration(is_above_zero=True),
        required=True,
        help="The longest restore you accept, e.g. 20s.",
    ),
    click.option(
        "--restorers",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Workers that restore at the same time.",
    ),
    click.option(
        "--transaction-timeout",
        type=Duration(),
        default=DEFAULT_TRANSACTION_TIMEOUT_MS / 1000,
        show_default=True,
        help="transaction.timeout.ms of the application, for changelogs with transactions.",
    ),
    click.option(
        "--slowest-replay",
        type=Duration(is_above_zero=True),
        help="The slowest reader that must see every tombstone. [default: ten restores, at least 60s]",
    ),
    click.option(
        "--disk", type=Size(), help="Bound on the bytes on disk, replaced files included, e.g. 500MiB."
    ),
    click.option(
        "--cpu",
        type=Cores(),
        help="Bound on the broker's CPU, in cores or per cent of one, e.g. 2%: the smallest log that it buys.",
    ),
    click.option(
        "--kafka",
        type=Release(),
        help="Keep to what this release allows, e.g. 5.0 before an upgrade. [default: the brokers']",
    ),
    click.option(
        "--provider",
        type=click.Choice(sorted(PROVIDERS)),
        default="apache",
        show_default=True,
        help="Keep to what this hosted Kafka allows to be set.",
    ),
)
