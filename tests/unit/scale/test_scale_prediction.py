"""How long a repartition is thought to take: a range, by what was measured here."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import msgspec
import pytest

from stateflow.cli.scale_text import human_seconds
from stateflow.scale.past_runs import RUNS_KEPT, PastRuns, default_path
from stateflow.scale.prediction import PHASES, Phase, Range, Run, Work, phase_seconds, predict, relevant_runs

SMALL = Work(engine="spark", lanes=2, moves=16, audits=40, slots=100_000)
LOCAL = msgspec.structs.replace(SMALL, engine="local")


def seconds(starting: float, preparing: float, moving: float, auditing: float) -> dict[Phase, float]:
    return dict(zip(PHASES, (starting, preparing, moving, auditing), strict=True))


def run(work: Work = SMALL, app: str = "shop", at_ms: int = 1, factor: float = 1.0) -> Run:
    took = seconds(9.0 * factor, 4.0 * factor, 40.0 * factor, 35.0 * factor)
    return Run(app=app, at_ms=at_ms, work=work, seconds=took)


def test_without_experience_the_range_is_wide_and_says_so() -> None:
    found = predict(SMALL, "shop", [])
    assert found.total.low < 20
    assert found.total.high > 60
    assert "general figures" in found.rests_on
    assert found.total.low == pytest.approx(sum(span.low for span in found.phases.values()))


def test_many_small_partitions_take_time_however_little_is_in_them() -> None:
    """Seven seconds were said by the slots alone, and 88 came: each job costs, whatever it moves."""
    many = Work(engine="spark", lanes=2, moves=96, audits=240, slots=200_000)
    found = predict(many, "shop", [])
    assert found.total.low < 88 < found.total.high


def test_sparks_start_counts_and_a_local_run_has_none() -> None:
    assert predict(SMALL, "shop", []).phases["starting"].high > 10
    assert predict(LOCAL, "shop", []).phases["starting"].high == 0
    assert predict(LOCAL, "shop", [run(LOCAL)]).phases["starting"].high == 0


def test_a_probe_says_what_reading_costs() -> None:
    large = msgspec.structs.replace(LOCAL, slots=20_000_000)
    fast, slow = (predict(large, "shop", [], rate).total for rate in (400_000.0, 20_000.0))
    assert slow.low > 10 * fast.low
    assert "a probe just now (20,000 slots/s" in predict(large, "shop", [], 20_000.0).rests_on


def test_after_a_run_the_same_work_is_predicted_around_what_it_took() -> None:
    found = predict(SMALL, "shop", [run()])
    assert found.total.low < 88 < found.total.high
    assert found.total.high < 2.2 * found.total.low
    assert found.phases["moving"].low < 40 < found.phases["moving"].high
    assert found.rests_on == "the last repartition of shop on this machine"


def test_several_runs_span_the_range() -> None:
    runs = [run(at_ms=at_ms, factor=factor) for at_ms, factor in enumerate((0.5, 1.0, 2.0))]
    found = predict(SMALL, "shop", runs)
    assert found.total.low < 44
    assert found.total.high > 176
    assert found.rests_on == "the last 3 repartitions of shop on this machine"


def test_more_work_takes_longer_and_is_known_less_well() -> None:
    larger = msgspec.structs.replace(SMALL, slots=8_000_000)
    same, more = predict(SMALL, "shop", [run()]).total, predict(larger, "shop", [run()]).total
    assert more.low > same.low
    assert more.high / more.low > same.high / same.low


def test_work_without_anything_to_move_is_predicted_after_runs_that_moved_something() -> None:
    local = Work(engine="local", lanes=2, moves=4, audits=8, slots=100)
    nothing = Work(engine="local", lanes=2, moves=0, audits=0, slots=0)
    found = predict(nothing, "shop", [run(local)])
    assert found.phases["moving"] == Range(0, 0)
    assert found.phases["preparing"].high > 0


def test_the_applications_own_runs_count_then_those_of_others_on_the_same_engine() -> None:
    others = [run(app="other", at_ms=at_ms) for at_ms in range(9)]
    assert [each.at_ms for each in relevant_runs("spark", "shop", others)] == [4, 5, 6, 7, 8]
    assert [each.app for each in relevant_runs("spark", "shop", [*others, run()])] == ["shop"]
    assert relevant_runs("local", "shop", others) == []
    assert "other applications" in predict(SMALL, "shop", others).rests_on


def test_runs_are_remembered(tmp_path: Path) -> None:
    past = PastRuns(tmp_path / "home" / "runs.jsonl")
    assert past.read() == []
    for number in range(RUNS_KEPT + 2):
        past.add(run(at_ms=number))
    assert [each.at_ms for each in past.read()] == list(range(2, RUNS_KEPT + 2))
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["runs.jsonl"]


def test_a_line_that_is_no_run_is_left_out_and_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "runs.jsonl"
    PastRuns(path).add(run())
    path.write_bytes(b"{half a li\n" + path.read_bytes())
    with caplog.at_level(logging.WARNING):
        assert [each.app for each in PastRuns(path).read()] == ["shop"]
    assert "Line 1 of" in caplog.text


def test_a_folder_that_cannot_be_read_or_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A repartition that succeeded ended with a traceback."""
    (tmp_path / "home").write_text("a file")
    (tmp_path / "taken" / "runs.jsonl").mkdir(parents=True)
    for place in (tmp_path / "home" / "runs.jsonl", tmp_path / "taken" / "runs.jsonl"):
        caplog.clear()
        past = PastRuns(place)
        past.add(run())
        assert past.read() == []
        not_noted, not_considered = (record.getMessage() for record in caplog.records)
        assert not_noted.startswith("This repartition is not noted")
        assert "are not considered" in not_considered
        assert str(place) in not_noted
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["runs.jsonl"], "no draft is left"


def test_a_file_that_cannot_be_replaced_leaves_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    PastRuns(tmp_path / "runs.jsonl").add(run(app="before"))

    def full(draft: Path, _: bytes) -> int:
        draft.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(Path, "write_bytes", full)
        PastRuns(tmp_path / "runs.jsonl").add(run(app="after"))
    assert "No space left" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == ["runs.jsonl"]
    assert [each.app for each in PastRuns(tmp_path / "runs.jsonl").read()] == ["before"]


def test_they_lie_in_the_users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEFLOW_HOME", str(tmp_path))
    assert default_path() == tmp_path / "scale-runs.jsonl"


def test_phases_left_out_take_no_time() -> None:
    assert phase_seconds({"moving": 1.23456}) == seconds(0, 0, 1.235, 0)


@pytest.mark.parametrize(
    ("given", "said"), [(7.4, "7 s"), (99.0, "99 s"), (240.0, "4 min"), (9000.0, "2.5 h")]
)
def test_a_prediction_has_few_digits(given: float, said: str) -> None:
    assert human_seconds(given) == said
