"""Every verb on one random log, straight, killed and repartitioned: the sample of `stateflow study operators`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import stateflow as sf
from stateflow.cli.main import run
from stateflow.lab.operators.study import all_verbs, run_verb
from stateflow.lab.operators.verb import Inputs, Rule, Verb, output

SEED = 163
"""Each verb has results on its first log."""
VERBS = all_verbs()


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_results_are_those_of_the_log(verb: Verb) -> None:
    report = run_verb(verb, SEED, [0])
    assert report.failed == []
    assert report.cases.total() == (3 if verb.is_scalable else 2)
    assert report.results > 0
    assert report.disturbed["kills"] > 0
    assert report.disturbed["repartition"] > 0 or not verb.is_scalable


def test_names_are_unique() -> None:
    assert len({verb.name for verb in VERBS}) == len(VERBS)


@pytest.mark.parametrize("name", ["count", "inner join of streams"])
def test_a_wrong_result_is_told(name: str) -> None:
    (verb,) = [each for each in VERBS if each.name == name]
    wrong = replace(verb, expected=lambda rows: list(verb.expected(rows))[1:])
    report = run_verb(wrong, SEED, [0], ["straight"])
    assert report.different == {name: 1}
    assert "instead [" in report.failed[0]


def failing(value: int) -> int:
    raise ZeroDivisionError(value)


def test_an_application_that_stops_is_told() -> None:
    def build(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
        topic = output(inputs)
        inputs.stream().map(failing).to(topic)
        return topic, "all"

    report = run_verb(Verb("failing", build, lambda _: []), SEED, [0], ["straight"])
    assert report.different == {"failing": 1}
    assert "ZeroDivisionError" in report.failed[0]


def test_the_command_runs_the_verbs_that_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["study", "operators", "--seed", "3", "--logs", "1", "--only", "filter", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["verbs"], body["cases"], body["different"]) == (2, 6, 0)
