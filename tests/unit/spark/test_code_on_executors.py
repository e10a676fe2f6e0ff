"""What an executor does before it runs an application: it builds the graph, and makes sure that it is the driver's."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest

from stateflow.app import load
from stateflow.errors import GraphError
from stateflow.lab.applications.words import topology
from stateflow.operators.topology.topology import Stage, Topology
from stateflow.spark.graph_check import CheckedGraph, fingerprints
from stateflow.spark.shipping import ShippedTarget, pipeline_of

APP = """
import stateflow as sf

app = sf.App("shop", partitions=2)
lines = app.topic("lines", value=str)
app.stream(lines).key_by(str, name="by-word", key=str).count(name="counts")
"""


def changed(**fields: object) -> Topology:
    """The words' application with another second stage."""
    lines, counts = topology("words").stages
    return Topology("words", (lines, replace(counts, **fields)))  # type: ignore[arg-type]


def loading(graph: Topology) -> Topology:
    return graph


def test_the_same_graph_is_built() -> None:
    assert fingerprints(topology("words")) == fingerprints(topology("words"))
    checked = CheckedGraph.of(functools.partial(topology, "words"), topology("words"))
    assert [stage.name for stage in checked().stages] == ["lines", "by-word"]


@pytest.mark.parametrize(
    "other",
    [
        changed(outputs=()),
        changed(stores=()),
        changed(hold_back_ms=5),
        changed(rekeys=("on",)),
        Topology("words", topology("words").stages[:1]),
    ],
)
def test_another_graph_is_refused_by_the_name_of_what_differs(other: Topology) -> None:
    with pytest.raises(GraphError, match=r"differs in by-word\)"):
        CheckedGraph.of(functools.partial(loading, other), topology("words"))()


def test_another_application_is_refused() -> None:
    stages: tuple[Stage, ...] = topology("words").stages
    with pytest.raises(GraphError, match="differs in its id"):
        CheckedGraph.of(functools.partial(loading, Topology("others", stages)), topology("words"))()


def test_a_file_is_found_where_the_driver_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "executor").mkdir()
    file = tmp_path / "shop_app.py"
    file.write_text(APP)
    monkeypatch.chdir(tmp_path)
    pipeline = pipeline_of("shop_app.py:app", load("shop_app.py:app"))
    assert [*pipeline.files.values()] == [file.read_bytes()]
    monkeypatch.chdir(tmp_path / "executor")  # an executor's working directory is another one
    assert fingerprints(pipeline.checked()) == fingerprints(pipeline.topology)


def test_a_module_is_imported() -> None:
    assert ShippedTarget.of("shop.orders:app").file is None
