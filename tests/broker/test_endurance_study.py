"""The study of endurance: its oracles, and a small case with real worker processes."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from stateflow.cli.main import run
from stateflow.lab.commands import endurance
from stateflow.lab.endurance.cases import LATER, Endurance, cases, counted, spread
from stateflow.lab.endurance.study import CaseResult

SMALL = Endurance(
    name="slow-20ms",
    about="20 ms per record",
    kind="counts",
    slow_seconds=0.02,
    records=lambda: spread(5, 150, 2),
    expected=counted,
)


def test_quick_and_full_are_the_same_situations() -> None:
    quick, full = cases(quick=True), cases(quick=False)
    assert [case.name for case in quick] == [case.name for case in full]
    assert all(
        sum(1 for _ in a.records()) <= sum(1 for _ in b.records()) for a, b in zip(quick, full, strict=True)
    )


@pytest.mark.parametrize(
    "case", [case for case in cases(quick=True) if case.kind != "counts"], ids=lambda c: c.name
)
def test_each_record_but_the_closing_ones_leads_to_one_result(case: Endurance) -> None:
    records = list(case.records())
    expected = case.expected(records)
    closing = [record for record in records if record.text.endswith(LATER)]
    assert {record.partition for record in closing} == set(range(case.partitions))
    assert sum(expected.values()) == len(records) - len(closing)
    assert set(expected.values()) == {1}


def test_counting_tells_each_record_and_its_count() -> None:
    records = list(spread(2, 4, 2))
    assert counted(records) == Counter(["k0 0 1", "k1 1 1", "k0 2 2", "k1 3 2"])


def test_a_promise_that_is_broken_is_told() -> None:
    fine = CaseResult("x", "", rss_mib_max=10, rss_limit_mib=20, commit_gap_seconds_max=1)
    assert not fine.is_bad
    for broken in ({"ended": True}, {"stuck": True}, {"different": 1}, {"rss_mib_max": 21.0}):
        assert replace(fine, **broken).is_bad
    assert replace(fine, commit_gap_seconds_max=3.5).is_bad


@pytest.mark.broker
@pytest.mark.slow
def test_a_slow_step_commits_within_the_interval(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(endurance, "cases", lambda *, quick: [SMALL] if quick else [])
    code = run(["study", "endurance", "--quick", "--folder", str(tmp_path), "--json"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["cases"], found["ended"], found["stuck"], found["different"]) == (1, 0, 0, 0)
    assert found["rss_over_limit"] == 0
    assert code == 0, found
