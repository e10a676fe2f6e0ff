"""The compaction loop that `stateflow run` keeps beside a worker: connections, topics and costs brought together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from stateflow.cli.application import connected
from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.calibration.calibrate import load
from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.control.beside_worker import WatchBesideWorker, elected_task
from stateflow.compaction.control.decision_log import DecisionLog
from stateflow.compaction.control.journal import Journal
from stateflow.compaction.control.kept_files import costs_path, found_at
from stateflow.compaction.control.several import SeveralWatchers
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.workload import RestoreRate
from stateflow.compaction.sensing.measure import MeasureOptions, measure
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.config import AppOptions
from stateflow.errors import ConfigError
from stateflow.log.kafka import KafkaOptions
from stateflow.runtime.task.wiring import Wiring

MEASURE_SECONDS = 2.0
RECORDS_MAX = 2_000_000
"""Of a changelog that is read to measure it, beside a worker that has other things to do."""


def watch_beside(options: AppOptions, wiring: Wiring) -> WatchBesideWorker:
    """The loop that holds ``restore_within_seconds`` for all changelogs of the application."""
    if options.restore_within_seconds is None:
        raise ConfigError("There is no restore time to hold.", action="Set restore_within_seconds.")
    transaction_timeout = int(
        options.client.get("transaction.timeout.ms", KafkaOptions().transaction_timeout_ms)
    )
    objective = Objective(
        options.restore_within_seconds,
        restorers=options.restore_workers,
        transaction_timeout_ms=transaction_timeout,
    )
    topics = changelogs(wiring)
    app = wiring.topology.app
    in_transactions = options.guarantee == "exactly-once"  # also while the log is too short to show it
    log = DecisionLog(options.state_dir / app / "compaction-decisions.jsonl")

    @contextmanager
    def opened(learnt: RestoreRate | None) -> Iterator[SeveralWatchers]:
        with ExitStack() as stack:
            cluster = stack.enter_context(connected(options))
            admin = ClusterAdmin(options.brokers, options.client)
            stack.callback(admin.close)
            how = MeasureOptions(
                seconds=MEASURE_SECONDS, records_max=RECORDS_MAX, restore=learnt, probe_records_max=0
            )
            calibrated = found_at(costs_path(cluster.cluster_id))

            def costs(found: Measurement) -> Costs:
                return load(calibrated, found.cleaner)

            def look(topic: str) -> Measurement:
                found = measure(cluster, topic, admin=admin, options=how)
                return replace(found, transactional=found.transactional or in_transactions)

            yield SeveralWatchers(
                cluster,
                admin,
                topics,
                objective,
                Journal(cluster.cluster_id),
                measure=look,
                costs=costs,
            )

    return WatchBesideWorker(elected_task(wiring.topology), opened, log)


def changelogs(wiring: Wiring) -> list[str]:
    """The changelog topics of the active generation."""
    stages = wiring.topology.stages
    found = {where.topic for stage in stages for where in wiring.task(stage, 0).changelogs.values()}
    return sorted(found)
