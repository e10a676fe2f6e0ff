"""What brokers with stock settings showed, and its summary."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy
from stateflow.lab.compaction.cycles import CleanerUse
from stateflow.lab.compaction.own_app import OwnRun

STOCK = CleanerSettings()
_SLOWNESS_MAX = 1.5


@dataclass(frozen=True, slots=True)
class StockCell:
    """One log over time, and what was promised of it."""

    name: str
    policy: Policy
    cleaner: CleanerSettings
    size_max_bytes: float
    size_mean_bytes: float
    expected_bytes: float
    """Predicted largest log in the time that it was watched, on average over the phases that it may have begun in."""
    expected_mean_bytes: float
    expected_in_any_phase_bytes: float
    """Predicted largest log over all phases of segments to looks, of which a minute or two show a few."""
    promised_bytes: float
    """The most that it may be, in any phase of segments to looks."""
    cleaner_cores: float | None
    """None where other topics shared the cleaner."""
    uncalibrated_cores: float
    calibrated_cores: float | None
    """None where costs were calibrated in another JVM, or not at all."""
    late: bool
    """The producer was late, so the load was another."""
    slowness: float
    """Time that the cleaner took for its passes, in terms of their CPU: more than 1 where it waited for a core."""
    overloaded: bool = False
    """The cleaner had no time for all of its logs: then nothing is promised, as recommendations refuse such a load."""

    @property
    def disturbed(self) -> bool:
        """True when the machine was too busy for a prediction. A promise counts waiting and lateness, and holds."""
        return self.late or self.slowness > _SLOWNESS_MAX

    @property
    def broken(self) -> bool:
        """True when the log was larger than promised."""
        return self.size_max_bytes > self.promised_bytes


@dataclass(frozen=True, slots=True)
class BrokerFigures:
    """The logs of one broker, and its cleaner's CPU for all of them."""

    name: str
    cleaner: CleanerSettings
    production_jvm: bool
    logs: tuple[StockCell, ...]
    use: CleanerUse
    uncalibrated_cores: float
    calibrated_cores: float | None

    @property
    def disturbed(self) -> bool:
        """True when the machine was too busy for a prediction."""
        return any(log.disturbed for log in self.logs)

    def summary(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return {
            "name": self.name,
            "backoff_ms": self.cleaner.backoff_ms,
            "dedupe_buffer_bytes": self.cleaner.dedupe_buffer_bytes,
            "production_jvm": self.production_jvm,
            "cells": len(self.logs),
            "bound_broken": sum(log.broken and not log.overloaded for log in self.logs),
            "overloaded": any(log.overloaded for log in self.logs),
            "size_mean_abs": _mean_abs(map(_size_error, self.logs)),
            "slowness": self.use.slowness,
            "cleaner_cores": self.use.cores,
            "cleaner_cores_predicted_uncalibrated": self.uncalibrated_cores,
            "cleaner_cores_predicted": self.calibrated_cores,
        }


@dataclass(frozen=True, slots=True)
class StockObjective:
    """A recommendation with a bound on disk or CPU, measured."""

    name: str
    bound: float
    """Bytes, or cores."""
    measured: float
    broker: BrokerFigures

    @property
    def held(self) -> bool:
        """True when it was kept."""
        return self.measured <= self.bound


@dataclass(frozen=True, slots=True)
class OwnApplication:
    """An application of ours with the setting by hand, and the same with images and a trimmed changelog."""

    by_hand: OwnRun
    trimmed: OwnRun
    bound_records: float
    """That the log behind an image may have, for the restore time of the objective."""

    @property
    def ratio(self) -> float:
        """CPU of cleaning and housekeeping with a trimmed log, of what cleaning by hand takes with its own."""
        first, then = self.by_hand, self.trimmed
        return (then.cleaner_cores + then.scheduler_cores) / (first.cleaner_cores + first.scheduler_cores)

    def summary(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return {
            "cpu_ratio_to_hand": self.ratio,
            "held": self.trimmed.log_records_max <= self.bound_records,
            "bound_records": self.bound_records,
            "by_hand": asdict(self.by_hand),
            "trimmed": asdict(self.trimmed),
        }


@dataclass(frozen=True, slots=True)
class StockLoad:
    """One load under the best setting by hand, ours, and ours with other cleaner settings, at the same bound."""

    updates_per_second: float
    bound_bytes: float
    hand: BrokerFigures
    tuned: BrokerFigures
    """The same run where nothing better than the setting by hand exists: then that is what is recommended."""
    with_broker_settings: BrokerFigures
    put_back: bool
    """True when the broker's settings afterwards were those before."""
    floor: float
    """Predicted share of the hand point's CPU that cleaner settings cannot save: what each new record costs, once."""
    predicted_tuned: float
    """Predicted share of the hand point's cleaner CPU under topic settings alone. What segments cost that are closed,
    which recommendations count, too, is in the threads that append, and not to be seen among what these do else."""
    predicted: float
    """Share that the cleaner settings were predicted to bring it down to."""
    own: OwnApplication | None = None

    @property
    def ratio(self) -> float:
        """CPU of topic settings alone, of that by hand."""
        return 1.0 if self.nothing_better else self.tuned.use.cores / self.hand.use.cores

    @property
    def nothing_better(self) -> bool:
        """True when the setting by hand is recommended."""
        return self.tuned.logs[0].policy == self.hand.logs[0].policy

    @property
    def ratio_with_broker_settings(self) -> float:
        """CPU with cleaner settings, too, of that by hand."""
        return self.with_broker_settings.use.cores / self.hand.use.cores

    def summary(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return {
            "updates_per_second": self.updates_per_second,
            "cpu_ratio_to_hand": self.ratio,
            "cpu_ratio_to_hand_predicted": self.predicted_tuned,
            "nothing_better_than_by_hand": self.nothing_better,
            "cpu_ratio_to_hand_with_broker_settings": self.ratio_with_broker_settings,
            "cpu_ratio_with_broker_settings_predicted": self.predicted,
            "cpu_ratio_floor_of_cleaner_settings": self.floor,
            "broker_settings_put_back": self.put_back,
            "image_and_trim": None if self.own is None else self.own.summary(),
            "hand": _broker_summary(self.hand, self.bound_bytes),
            "tuned": _broker_summary(self.tuned, self.bound_bytes),
            "with_broker_settings": _broker_summary(self.with_broker_settings, self.bound_bytes),
        }


@dataclass(frozen=True, slots=True)
class StockFigures:
    """What the stock brokers showed."""

    loads: tuple[StockLoad, ...]
    brokers: tuple[BrokerFigures, ...]
    """Those with random logs, whose bounds were checked."""
    objectives: tuple[StockObjective, ...] = ()
    """Recommendations for other objectives, measured."""

    @property
    def all_brokers(self) -> tuple[BrokerFigures, ...]:
        """Every broker that ran."""
        three = [one for load in self.loads for one in (load.hand, load.tuned, load.with_broker_settings)]
        return *self.brokers, *dict.fromkeys([*three, *(one.broker for one in self.objectives)])

    @property
    def cells(self) -> tuple[StockCell, ...]:
        """Every log that was watched."""
        return tuple(log for broker in self.all_brokers for log in broker.logs)

    def summary(self) -> dict[str, Any]:
        """As plain data for JSON; ratios are the worst of all loads."""
        return {
            "backoff_ms": STOCK.backoff_ms,
            "dedupe_buffer_bytes": STOCK.dedupe_buffer_bytes,
            **live_summary(self.cells, self.all_brokers),
            "cpu_ratio_to_hand": max((load.ratio for load in self.loads), default=None),
            "cpu_ratio_to_hand_with_broker_settings": max(
                (load.ratio_with_broker_settings for load in self.loads), default=None
            ),
            "broker_settings_put_back": all(load.put_back for load in self.loads),
            "loads": [load.summary() for load in self.loads],
            "objectives": [
                {"objective": one.name, "bound": one.bound, "measured": one.measured, "held": one.held}
                for one in self.objectives
            ],
        }


def live_summary(cells: Sequence[StockCell], brokers: Sequence[BrokerFigures]) -> dict[str, Any]:
    """Bounds and errors of logs that were watched, as plain data for JSON."""
    return {
        "cells": len(cells),
        "cells_on_overloaded_cleaners": sum(cell.overloaded for cell in cells),
        "bound_broken": sum(cell.broken and not cell.overloaded for cell in cells),
        "larger_than_promised_on_overloaded_cleaners": sum(cell.broken and cell.overloaded for cell in cells),
        "promised_to_largest_mean": _mean_abs(cell.promised_bytes / cell.size_max_bytes for cell in cells),
        "errors": _errors(cells, brokers),
        "errors_undisturbed": _errors(
            [cell for cell in cells if not cell.disturbed],
            [broker for broker in brokers if not broker.disturbed],
        ),
    }


def _errors(cells: Sequence[StockCell], brokers: Sequence[BrokerFigures]) -> dict[str, float | int | None]:
    """Mean absolute errors of the predictions, sizes by log, CPU by broker; None of none."""
    known = [
        (broker.calibrated_cores, broker.use.cores)
        for broker in brokers
        if broker.calibrated_cores is not None
    ]
    return {
        "cells": len(cells),
        "size_mean_abs": _mean_abs(map(_size_error, cells)),
        "size_without_bursts_mean_abs": _mean_abs(
            _size_error(cell) for cell in cells if not cell.name.startswith("bursts")
        ),
        "size_in_any_phase_mean_abs": _mean_abs(
            cell.expected_in_any_phase_bytes / cell.size_max_bytes - 1 for cell in cells
        ),
        "mean_size_mean_abs": _mean_abs(
            cell.expected_mean_bytes / cell.size_mean_bytes - 1 for cell in cells
        ),
        "brokers": len(brokers),
        "cpu_uncalibrated_mean_abs": _mean_abs(
            broker.uncalibrated_cores / broker.use.cores - 1 for broker in brokers
        ),
        "cpu_calibrated_mean_abs": _mean_abs(cores / measured - 1 for cores, measured in known),
    }


def _size_error(cell: StockCell) -> float:
    return cell.expected_bytes / cell.size_max_bytes - 1


def _mean_abs(values: Iterable[float]) -> float | None:
    found = [abs(value) for value in values]
    return statistics.fmean(found) if found else None


def _broker_summary(broker: BrokerFigures, bound_bytes: float) -> dict[str, Any]:
    (cell,) = broker.logs
    return {
        "policy": cell.policy.to_config(),
        "backoff_ms": broker.cleaner.backoff_ms,
        "dedupe_buffer_bytes": broker.cleaner.dedupe_buffer_bytes,
        "size_max_bytes": cell.size_max_bytes,
        "size_max_predicted_bytes": cell.expected_bytes,
        "slowness": cell.slowness,
        "held": cell.size_max_bytes <= bound_bytes,
        "cycles": broker.use.cycles,
        "cleaner_cores": broker.use.cores,
        "cleaner_cores_of_single_cycles": [broker.use.low, broker.use.high],
        "cleaner_cores_predicted_uncalibrated": broker.uncalibrated_cores,
        "cleaner_cores_predicted": broker.calibrated_cores,
    }
