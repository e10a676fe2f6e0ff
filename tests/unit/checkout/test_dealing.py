"""How the tests are shared by several processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dealing import SPARK_OF_THEIR_OWN, sort_long_first, unit_of


class Item:
    """As much of a collected test as is looked at."""

    def __init__(self, nodeid: str, *marks: pytest.MarkDecorator) -> None:
        self.nodeid = nodeid
        self._marks = marks

    def iter_markers(self, name: str | None = None) -> list[pytest.Mark]:
        return [mark.mark for mark in self._marks if name in (None, mark.name)]


def ordered(*items: Item) -> list[str]:
    found = list(items)
    sort_long_first(found)  # type: ignore[arg-type]
    return [item.nodeid for item in found]


def test_long_files_begin_and_keep_the_order_of_their_tests() -> None:
    assert ordered(
        Item("one.py::b"),
        Item("two.py::b"),
        Item("two.py::a"),
        Item("long.py::a", pytest.mark.timeout(1200)),
        Item("session.py::a", pytest.mark.spark, pytest.mark.broker),
    ) == ["session.py::a", "long.py::a", "two.py::b", "two.py::a", "one.py::b"]


def test_what_computes_and_what_waits_go_by_turns() -> None:
    broker = [Item(f"b{number}.py::x", pytest.mark.broker) for number in range(4)]
    slow = [Item(f"s{number}.py::x", pytest.mark.slow) for number in range(2)]
    files = [nodeid[:2] for nodeid in ordered(Item("a.py::x"), *slow, *broker)]
    assert files == ["b0", "s0", "b1", "b2", "s1", "b3", "a."]


def test_files_go_as_a_whole_and_spark_goes_alone() -> None:
    assert unit_of("tests/unit/test_a.py::test_b[::]") == "tests/unit/test_a.py"
    assert unit_of("tests/spark/test_a.py::test_b") == unit_of("tests/spark/test_c.py::test_d")


def test_spark_in_processes_of_a_test_waits_for_no_session() -> None:
    spark = Path(__file__).resolve().parents[2] / "spark"
    for name in SPARK_OF_THEIR_OWN:
        assert unit_of(f"tests/spark/{name}::test_a") == f"tests/spark/{name}"
        assert "session(" not in (spark / name).read_text(), "it has one in this process"


def test_all_that_starts_a_session_is_in_that_folder() -> None:
    tests = Path(__file__).resolve().parents[2]
    files = [path for path in tests.rglob("test_*.py") if path != Path(__file__).resolve()]
    assert {path.parent.name for path in files if "mark.spark" in path.read_text()} == {"spark"}
