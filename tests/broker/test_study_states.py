"""`stateflow study states` as a person starts it, for two types."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from stateflow.lab.commands.states import command
from stateflow.testing.broker import TestBroker

pytestmark = pytest.mark.broker


def test_the_last_line_has_the_four_costs_of_each_type(broker: TestBroker) -> None:
    arguments = ["--brokers", broker.bootstrap, "--updates", "4000", "--runs", "1", "--json"]
    ran = CliRunner().invoke(command, [*arguments, "--only", "counter", "--only", "list"])
    assert ran.exit_code == 0, ran.output
    study = json.loads(ran.stdout.strip().splitlines()[-1])
    assert set(study["types"]) == {"counter", "list"}
    counter, elements = study["types"]["counter"], study["types"]["list"]
    assert 1_000 < counter["entries"] <= study["keys"]
    assert elements["changelog_bytes_per_update"] > counter["changelog_bytes_per_update"] > 0
    for costs in (counter, elements):
        assert costs["query_us"] > 0
        assert costs["repartition_cpu_us"] > 0
        assert costs["merge_us"] > 0
        assert costs["checkpoint_bytes"] > costs["delta_bytes"] > 0


def test_an_unknown_type_is_named(broker: TestBroker) -> None:
    ran = CliRunner().invoke(command, ["--brokers", broker.bootstrap, "--only", "tree"])
    assert "no type of state called 'tree'" in str(ran.exception)
