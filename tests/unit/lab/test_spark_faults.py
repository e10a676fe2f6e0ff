"""The oracle of `study spark-faults`: what is missing or differs is lost, what is there again came twice."""

from __future__ import annotations

import json
from pathlib import Path

from stateflow.lab.spark_faults.cases import CASES, Verdict, committed_files, compared
from stateflow.lab.spark_faults.study import TARGETS, FaultStudy, JobFaults
from stateflow.spark.submit import JOBS


def test_missing_changed_and_doubled_rows_are_told_apart() -> None:
    wanted = [("a", 1), ("b", 2), ("c", 3)]
    assert compared(wanted, wanted) == Verdict(0, 0)
    assert compared(wanted, [("a", 1), ("c", 3)]) == Verdict(1, 0)
    assert compared(wanted, [*wanted, ("a", 1)]) == Verdict(0, 1)
    assert compared(wanted, [("a", 1), ("b", 9), ("c", 3)]) == Verdict(1, 1)


def test_files_of_a_micro_batch_that_was_not_finished_do_not_count(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    (log / "0").write_text("v1\n" + json.dumps({"path": "file:/x/part-0.parquet", "action": "add"}))
    (log / ".1.tmp").write_text("v1\n" + json.dumps({"path": "file:/x/part-1.parquet"}))
    (tmp_path / "part-1.parquet").touch()
    assert committed_files(tmp_path) == [tmp_path / "part-0.parquet"]


def test_every_template_is_under_fire_and_any_difference_shows() -> None:
    assert CASES.keys() == set(JOBS)
    study = FaultStudy(1, {job: JobFaults() for job in CASES})
    study.by_job["recover"].kills[TARGETS[0]] += 2
    assert study.is_clean
    assert (study.summary()["kills"], study.summary()["lost"]) == (2, 0)
    spoilt = FaultStudy(1, {"pipeline": JobFaults(twice=1)})
    assert not spoilt.is_clean
    assert spoilt.summary()["twice"] == 1
    spoilt.by_job["pipeline"].add(JobFaults(runs=2, lost=3, seconds=4.0))
    assert spoilt.summary()["lost"] == 3
    assert spoilt.by_job["pipeline"].as_dict()["runs"] == 2
