"""What else shortens a restore, with predicted figures: other broker settings, restorers, partitions,
images, standbys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from stateflow.compaction.advice.explain import bounds_of
from stateflow.compaction.advice.fitting import fitting_cleaner
from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.advice.search import SearchSpace, least_cores
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.knobs import knobs_for
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy

BROKER_SETTINGS = "broker settings"
SAVING_MIN_SHARE = 0.1
"""Of the CPU: ways that save less are not told."""
IMAGE_BYTES_PER_SECOND = 200e6
"""Copying an image from a local disk or object store: a cautious figure, stated beside every use."""
APPEND_SECONDS_PER_RECORD = 6e-6
"""Broker CPU of one more record among others in a batch: as measured on a broker with only the client compiler."""
_IMAGE_FIXED_SECONDS = 0.2
_ANY_SECONDS = 1e9
_STANDBY_LAG_SECONDS = 1.0
_TRANSACTION_TIMEOUT_MS = 5_000


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way beside topic settings: what to do, what it is predicted to give, and what it costs."""

    name: str
    action: str
    restore_seconds: float
    meets: bool
    cleaner_cores: float | None
    note: str
    share: float | None = None
    """Of the CPU that it takes without; None where that is not compared, or the objective not reachable without."""


def alternatives(
    measurement: Measurement, objective: Objective, costs: Costs, base: Policy
) -> tuple[Alternative, ...]:
    """Every way that this tuner knows, each with its prediction, whether it meets the objective or not."""
    found = [
        *_more_restorers(measurement, objective, costs, base),
        *_broker_settings(measurement, objective, costs, base),
        *_shorter_transactions(measurement, objective, costs, base),
        *_fewer_tombstones(measurement, objective, costs, base),
        _standby(measurement, objective, costs, base),
    ]
    # Another system's restorers read the whole log: they know no images, and nobody there writes old keys again.
    if measurement.ours:
        found += [_image_and_tail(measurement, objective), _eventual(measurement, objective)]
    return tuple(found)


def _best_cores(
    measurement: Measurement,
    objective: Objective,
    costs: Costs,
    base: Policy,
    factor: float,
    cleaner: CleanerSettings,
) -> float | None:
    """Least CPU when the record budget is ``factor`` times one restorer's, looking of idle threads included; None if
    it is not reachable.
    """
    version = (5, 0) if measurement.broker_newer_than_known else measurement.broker_version
    shared = min(factor, measurement.partitions)
    space = SearchSpace(
        base,
        knobs_for(version),
        cleaner,
        costs,
        objective.rate_headroom,
        objective.live_headroom,
        shared,
        cores_bounded=objective.cpu_cores_max is not None,
    )
    within = measurement.restore.records_within(objective.restore_within_seconds)
    budget = within * factor * (1 - objective.margin)
    bounds = bounds_of(objective, budget, costs, cleaner)
    cores = least_cores(measurement.workload(), space, bounds)
    return None if cores is None else cores + costs.looking_cores(cleaner)


def _if_it_saves(
    measurement: Measurement,
    objective: Objective,
    costs: Costs,
    base: Policy,
    changed: tuple[Policy, CleanerSettings],
    told: tuple[str, str, str],
) -> list[Alternative]:
    """Another policy to start from and other cleaner settings, where that saves a tenth of the CPU or makes the
    objective reachable. ``told`` is its name, what to do, and what speaks against it.
    """
    factor = objective.parallelism(measurement.partitions)
    before = _best_cores(measurement, objective, costs, base, factor, measurement.cleaner)
    policy, cleaner = changed
    after = _best_cores(measurement, objective, costs, policy, factor, cleaner)
    if after is None or (before is not None and after > (1 - SAVING_MIN_SHARE) * before):
        return []
    gain = (
        "makes the objective reachable"
        if before is None
        else f"CPU from {before:.2%} to {after:.2%} of a core"
    )
    name, action, drawback = told
    share = None if before is None else after / before
    seconds = objective.restore_within_seconds
    return [Alternative(name, action, seconds, True, after, f"{gain}; {drawback}", share)]


def _more_restorers(
    measurement: Measurement, objective: Objective, costs: Costs, base: Policy
) -> list[Alternative]:
    """The fewest restorers that can hold the live records with a third of the budget free for dirty ones."""
    within = measurement.restore.records_within(objective.restore_within_seconds) * (1 - objective.margin)
    live = measurement.records_floor * objective.live_headroom
    if within <= 0 or within > 1.5 * live:
        return []
    wanted = math.ceil(1.5 * live / within)
    cores = _best_cores(measurement, objective, costs, base, wanted, measurement.cleaner)
    seconds = measurement.restore.seconds(1.5 * live / wanted)
    if wanted <= measurement.partitions:
        name, action = (
            "parallel restore",
            f"restore with --workers {wanted} (the topic has {measurement.partitions} partitions)",
        )
    else:
        name, action = (
            "more partitions",
            f"`stateflow scale` to {wanted} partitions or more, and restore with as many workers",
        )
    return [
        Alternative(
            name, action, seconds, cores is not None, cores, "needs that many cores free at restore time"
        )
    ]


def _broker_settings(
    measurement: Measurement, objective: Objective, costs: Costs, base: Policy
) -> list[Alternative]:
    """Cleaner settings that are wrong for this topic: a long sleep, or a dedupe buffer far larger than its keys."""
    cleaner, better = measurement.cleaner, fitting_cleaner(measurement, objective, costs)
    if better == cleaner:
        return []
    told = (
        BROKER_SETTINGS,
        f"log.cleaner.backoff.ms={better.backoff_ms}, "
        f"log.cleaner.dedupe.buffer.size={better.dedupe_buffer_bytes} (`apply --broker-settings` chooses them "
        "for all compacted topics of the brokers)",
        "restarts the cleaner threads and affects every compacted topic of the broker, "
        "the buffer must hold the dirty keys of the largest of them",
    )
    return _if_it_saves(measurement, objective, costs, base, (base, better), told)


def _shorter_transactions(
    measurement: Measurement, objective: Objective, costs: Costs, base: Policy
) -> list[Alternative]:
    """A shorter transaction timeout, when its guard keeps much of the log from being cleaned."""
    if not measurement.transactional or objective.transaction_timeout_ms <= _TRANSACTION_TIMEOUT_MS:
        return []
    shorter = replace(base, min_lag_ms=_TRANSACTION_TIMEOUT_MS + 1000)
    told = (
        "shorter transactions",
        f"run the application with transaction.timeout.ms={_TRANSACTION_TIMEOUT_MS}, and recommend again with "
        f"--transaction-timeout {_TRANSACTION_TIMEOUT_MS / 1000:g}s",
        "a commit that takes longer is then aborted",
    )
    return _if_it_saves(measurement, objective, costs, base, (shorter, measurement.cleaner), told)


def _fewer_tombstones(
    measurement: Measurement, objective: Objective, costs: Costs, base: Policy
) -> list[Alternative]:
    """A shorter retention, when the tombstones of many bursts make much of the log."""
    shortest_ms = round(2000 * objective.restore_within_seconds)
    if measurement.bursts is None or base.delete_retention_ms <= shortest_ms:
        return []
    shorter = replace(base, delete_retention_ms=shortest_ms)
    told = (
        "fewer tombstones",
        f"see that no reader takes longer than {shortest_ms / 1000:g} s from the log's beginning to its end, and "
        f"recommend again with --slowest-replay {shortest_ms / 1000:g}s",
        "a slower reader could miss that a key was deleted",
    )
    return _if_it_saves(measurement, objective, costs, base, (shorter, measurement.cleaner), told)


def _fits_disk(objective: Objective, log_bytes: float) -> bool:
    return objective.disk_bytes_max is None or log_bytes <= objective.disk_bytes_max


def _image_and_tail(measurement: Measurement, objective: Objective) -> Alternative:
    """An image every half of what the rest of the objective can replay, and only the log behind it."""
    image_seconds = (
        _IMAGE_FIXED_SECONDS
        + measurement.workload().live_records
        * (measurement.live_record_bytes or measurement.record_bytes)
        / IMAGE_BYTES_PER_SECOND
    )
    spare = objective.restore_within_seconds * (1 - objective.margin) - image_seconds
    tail = measurement.restore.records_within(spare)
    rate = max(measurement.updates_per_second * objective.rate_headroom, 1e-9)
    interval = min(3600.0, max(1.0, tail / rate / 2))
    seconds = image_seconds + measurement.restore.seconds(2 * interval * rate)
    return Alternative(
        "image + tail",
        f"upload an image at least every {interval:,.0f} s",
        seconds,
        seconds <= objective.restore_within_seconds
        and _fits_disk(objective, 2 * interval * rate * measurement.record_bytes),
        0.0,
        f"no cleaner work; assumes {IMAGE_BYTES_PER_SECOND / 1e6:.0f} MB/s for the image; trimming the "
        f"log behind it "
        "needs cleanup.policy=compact,delete",
    )


def _eventual(measurement: Measurement, objective: Objective) -> Alternative:
    """The keys written longest ago written once more, and the log trimmed behind them: no cleaner at all.

    A key is written again when N records have gone by without it, N being the records that the log may hold. Its gaps
    are then the smaller of N and the time to its next update, so with w records written per update, L keys drawn
    alike give w = 1 / (1 − exp(−N / (w·L))), and updates that hit a few keys only give w = N / (N − L) (renewal
    theory). What lies between depends on how the updates are spread over the keys.
    """
    budget = measurement.restore.records_within(objective.restore_within_seconds) * (1 - objective.margin)
    live = max(1.0, measurement.records_floor * objective.live_headroom)
    rate = measurement.updates_per_second * objective.rate_headroom
    if budget <= live:
        return Alternative(
            "eventual re-emission",
            "not possible: the live records alone take longer",
            measurement.restore.seconds(live),
            False,
            None,
            "every live record must be in the log",
        )
    few, alike = writes_per_update(live, budget)
    cores = (math.sqrt(few * alike) - 1) * rate * APPEND_SECONDS_PER_RECORD
    return Alternative(
        "eventual re-emission",
        f"write the keys written longest ago again ({alike - 1:.1f} … {few - 1:.1f} more writes per update) and trim "
        "the log behind them (DeleteRecords, cleanup.policy=compact,delete)",
        measurement.restore.seconds(budget),
        _fits_disk(objective, budget * measurement.record_bytes)
        and (objective.cpu_cores_max is None or cores <= objective.cpu_cores_max),
        cores,
        f"no cleaner work; assumes {1e6 * APPEND_SECONDS_PER_RECORD:.0f} µs of broker CPU per record appended; the "
        "application reads and writes that many more values",
    )


def writes_per_update(live: float, log_records: float) -> tuple[float, float]:
    """Records written per update by eventual re-emission in a log of so many: when few keys are hit, and when all
    are hit alike.
    """
    low, high = 1.0, log_records / (log_records - live)
    for _ in range(60):
        middle = (low + high) / 2
        too_low = middle * -math.expm1(-log_records / (middle * live)) < 1
        low, high = (middle, high) if too_low else (low, middle)
    return log_records / (log_records - live), high


def _keeps_bounds(measurement: Measurement, objective: Objective, costs: Costs, base: Policy) -> bool:
    """True when some policy keeps the bounds on disk and CPU, were the log's restore to take as long as it likes."""
    if objective.disk_bytes_max is None and objective.cpu_cores_max is None:
        return True
    slow = replace(objective, restore_within_seconds=_ANY_SECONDS)
    factor = objective.parallelism(measurement.partitions)
    return _best_cores(measurement, slow, costs, base, factor, measurement.cleaner) is not None


def _standby(measurement: Measurement, objective: Objective, costs: Costs, base: Policy) -> Alternative:
    """A store that is there already. The log must keep the bounds on disk and CPU all the same, however long its
    restore then takes.
    """
    records = measurement.updates_per_second * objective.rate_headroom * _STANDBY_LAG_SECONDS
    seconds = measurement.restore.seconds(records)
    return Alternative(
        "standby",
        "keep one standby replica of the store on another worker",
        seconds,
        seconds <= objective.restore_within_seconds and _keeps_bounds(measurement, objective, costs, base),
        None,
        f"assumes a standby at most {_STANDBY_LAG_SECONDS:g} s behind; costs that worker the update rate "
        f"and the state's "
        "disk, and does not help when both are lost",
    )
