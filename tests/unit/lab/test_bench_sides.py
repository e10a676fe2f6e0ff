"""How the sides of a benchmark are started."""

from __future__ import annotations

import pytest

from stateflow.lab.bench.side import side_environment


def test_a_side_does_without_settings_of_applications_but_keeps_the_choice_of_the_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is how plain Python is measured."""
    monkeypatch.setenv("STATEFLOW_BROKERS", "elsewhere:9092")
    monkeypatch.setenv("STATEFLOW_NATIVE", "0")
    monkeypatch.setenv("HOME", "/home/somebody")
    found = side_environment()
    assert "STATEFLOW_BROKERS" not in found
    assert found["STATEFLOW_NATIVE"] == "0"
    assert found["HOME"] == "/home/somebody"
