"""Numbers that make no sense are refused before anything is asked of a broker, by options and by functions."""

from __future__ import annotations

import math
from typing import Any

import pytest

from stateflow.cli.main import run
from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.control.watch import WatchOptions
from stateflow.compaction.model.workload import RestoreRate
from stateflow.compaction.sensing.measure import MeasureOptions
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.knobs import NEVER_MS
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy
from stateflow.errors import ConfigError

NOWHERE = ["--brokers", "localhost:1", "--topic", "t"]
"""No broker answers there: whoever asked it would end with another exit code, and later."""
GOAL = ["--restore-within", "20s"]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["measure", "--rate", "nan"], "'--rate': 'nan' is no finite number of at least 0."),
        (["measure", "--rate", "inf"], "'--rate': 'inf' is no finite number of at least 0."),
        (["measure", "--rate", "-5"], "'--rate': '-5' is no finite number of at least 0."),
        (["measure", "--restore-rate", "0"], "'--restore-rate': '0' is no finite number above 0."),
        (["measure", "--restore-rate", "nan"], "'--restore-rate': 'nan' is no finite number above 0."),
        (["recommend", *GOAL, "--records-max", "0"], "'--records-max': 0 is not in the range x>=1."),
        (["recommend", *GOAL, "--restorers", "0"], "'--restorers': 0 is not in the range x>=1."),
        (["recommend", "--restore-within", "0s"], "'--restore-within': '0s' is too short or too long"),
        (["watch", *GOAL, "--interval", "0s"], "'--interval': '0s' is too short or too long"),
        (
            ["model", "--set", "segment.ms=abc"],
            "'--set': segment.ms=abc is no whole number in the legal range 1 …",
        ),
        (
            ["model", "--set", "segment.ms=0"],
            f"'--set': segment.ms=0 is no whole number in the legal range 1 … {NEVER_MS}",
        ),
        (["model", "--set", "min.cleanable.dirty.ratio=7"], "is no number in the legal range 0.0 … 1.0"),
        (["model", "--set", "min.cleanable.dirty.ratio=nan"], "is no number in the legal range 0.0 … 1.0"),
        (["model", "--set", "nonsense=3"], "'--set': Not a compaction setting of a topic: nonsense."),
        (["model", "--set", "segment.ms"], "'--set': 'segment.ms' is not a setting"),
    ],
)
def test_an_option_out_of_range_is_refused_with_its_range(
    command: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compaction", *command, *NOWHERE]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_functions_refuse_what_no_model_can_take(value: float) -> None:
    rate = RestoreRate(1000)
    for make in (
        lambda: Objective(value),
        lambda: Objective(1.0, rate_headroom=value),
        lambda: Objective(1.0, cpu_cores_max=value),
        lambda: Objective(1.0, replay_seconds_max=value),
        lambda: RestoreRate(value),
        lambda: RestoreRate(1000, value),
        lambda: MeasureOptions(seconds=value),
        lambda: MeasureOptions(updates_per_second=value),
        lambda: WatchOptions(save_interval_seconds=value),
        lambda: known(updates_per_second=value, restore=rate),
        lambda: Policy().with_config({"min.cleanable.dirty.ratio": str(value)}),
    ):
        with pytest.raises(ConfigError):
            make()


def test_a_measurement_that_reads_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="records_max is 0"):
        MeasureOptions(records_max=0)


@pytest.mark.parametrize("text", ["abc", "-5", "0", "1.5", str(NEVER_MS + 1), ""])
def test_a_policy_takes_no_time_that_no_broker_takes(text: str) -> None:
    with pytest.raises(ConfigError, match="no whole number in the legal range"):
        Policy().with_config({"segment.ms": text})


def test_a_policy_takes_what_one_release_takes() -> None:
    assert Policy().with_config({"segment.ms": "1", "segment.bytes": "14"}).segment_bytes == 14


def known(**changed: Any) -> Measurement:
    load: dict[str, Any] = {"live_keys": 10, "record_bytes": 100.0, "cleaner": CleanerSettings()}
    return Measurement.known("t", **load, **changed)
