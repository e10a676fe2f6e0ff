"""The table of metrics in the documentation is that of the code, and names tell units as Prometheus wants them."""

from __future__ import annotations

from pathlib import Path

from stateflow.runtime.worker.metrics import METRICS
from stateflow.runtime.worker.metrics_endpoint import PREFIX

ROOT = Path(__file__).resolve().parents[4]
UNITS = ("total", "seconds", "bytes", "offsets", "ratio", "info", "keys", "tasks", "second")


def test_the_documented_metrics_are_those_served() -> None:
    text = (ROOT / "docs/operating.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith(f"| `{PREFIX}")]
    assert rows == [
        f"| `{PREFIX}{each.name}` | {each.kind} | {', '.join(each.labels)} | {each.text} |"
        for each in METRICS
    ]


def test_names_end_in_their_units_and_counters_in_total() -> None:
    for metric in METRICS:
        assert metric.name.rpartition("_")[2] in UNITS, metric.name
        assert (metric.kind == "counter") == metric.name.endswith("_total"), metric.name
        assert metric.labels[0] == "app"
