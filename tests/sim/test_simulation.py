"""Histories drawn from seeds: no promise broken, the same seed the same history, failures that can be read."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stateflow.lab.faults.simulation.history import PROFILES, Profile, generate
from stateflow.lab.faults.simulation.oracle import Finding
from stateflow.lab.faults.simulation.simulate import SimulationReport, replay, run, simulate
from stateflow.lab.faults.simulation.verbs import verb_history, verbs_by_name

pytestmark = pytest.mark.slow


def told(report: SimulationReport) -> str:
    return "\n".join(f"seed {seed}: {what}" for seed, what in report.examples.items())


@pytest.fixture(scope="module")
def first_histories() -> SimulationReport:
    """Of 60 seeds, in one process."""
    return simulate(range(60))


def test_a_sample_of_histories_breaks_no_promise(first_histories: SimulationReport) -> None:
    report = simulate(range(60, 300))
    report.merge(first_histories)
    assert report.is_clean, told(report)
    assert report.seeds == 300
    assert sum(report.injected.values()) > 300, "histories must have faults in them, or this shows little"
    assert report.judged["late"] > 10
    assert report.judged["windows"] > 1_000
    assert report.batchings > 3_000


@pytest.mark.parametrize("profile", PROFILES)
def test_a_few_histories_of_each_profile(profile: Profile) -> None:
    report = simulate(range(1000, 1020), profile=profile)
    assert report.is_clean, told(report)


def test_a_history_of_each_verb_breaks_no_promise() -> None:
    """Its results are those of the log, through kills and hangs anywhere, repartitions and disks that lag."""
    report = simulate(range(len(verbs_by_name())), profile="verbs")
    assert report.is_clean, told(report)
    assert sum(report.injected.values()) > len(verbs_by_name())
    assert report.judged["results"] > 10 * len(verbs_by_name())


def test_seeds_go_through_all_verbs_and_replay_to_the_last_step() -> None:
    count = len(verbs_by_name())
    assert {verb_history(seed).verb for seed in range(7, 7 + count)} == verbs_by_name().keys()
    for seed in (5, 17, 58):
        first, second = replay(seed, "verbs"), replay(seed, "verbs")
        assert first.trace_hash == second.trace_hash
        assert verb_history(seed).verb in first.text()


@pytest.mark.parametrize("name", ["in_order", "hopping, on update", "several inputs"])
def test_a_wrong_result_of_a_verb_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One result that the oracle does not expect: a verb that loses it would look the same from the other side."""
    verb = verbs_by_name()[name]
    wrong = replace(verb, expected=lambda rows: [*verb.expected(rows), ("k", -1)])
    monkeypatch.setitem(verbs_by_name(), name, wrong)
    ended = run(verb_history(3, name))
    assert [(finding.kind, finding.check) for finding in ended.findings] in (
        [("lost", "results")],
        [("silent", "results")],
    )


@pytest.mark.parametrize("seed", [3, 8, 21, 34, 55])
def test_a_seed_replays_to_the_last_step(seed: int) -> None:
    for profile in PROFILES:
        first, second = run(generate(seed, profile)), run(generate(seed, profile))
        assert first.lines == second.lines
        assert first.trace_hash == second.trace_hash


def test_seeds_differ() -> None:
    hashes = {replay(seed).trace_hash for seed in range(20)}
    assert len(hashes) == 20


def test_processes_count_what_one_does(first_histories: SimulationReport) -> None:
    alone, shared = first_histories, simulate(range(60), processes=2)
    assert (alone.seeds, alone.injected, alone.reached) == (shared.seeds, shared.injected, shared.reached)


def test_no_process_outlives_the_one_that_asked() -> None:
    """The pool's processes hold the pipe open: it ends when the last of them has."""
    program = (
        "from stateflow.lab.faults.simulation.simulate import simulate\n"
        "simulate(range(100_000), processes=2, on_progress=lambda _: print('on its way', flush=True))\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "on its way\n"
        started.kill()
        assert set(started.stdout) <= {"on its way\n"}, "read to the end"
    assert started.returncode == -signal.SIGKILL


def test_a_report_names_its_failures() -> None:
    report = SimulationReport()
    ended = replay(1)
    report.add(ended)
    assert report.as_dict()["lost"] == []
    broken = replace(ended, findings=(Finding("lost", "outputs", "operations [1]"),))
    report.add(broken)
    assert report.as_dict()["lost"] == [1]
    assert not report.is_clean
    assert "seed 1:" in broken.text()
    assert "⇒ lost (outputs): operations [1]" in broken.text()


def test_the_documented_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "exactly-once.md").read_text()
    example = next(
        block
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        if "simulate(range(300)" in block
    )
    exec(example.replace("range(300), processes=2", "range(5)"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("[] [] []")
    assert "seed 7:" in printed
