"""Columns of records on their way, and that there is one way only."""

from __future__ import annotations

import ast

from stateflow.log.outgoing import Outgoing
from tests.unit.checkout.test_shape import parsed, sources, suite


def test_what_is_given_once_holds_for_every_row() -> None:
    rows = Outgoing("t", [b"a", None], [None, b"2"], 3, 7).rows()
    assert list(rows) == [(b"a", None, 3, 7, ()), (None, b"2", 3, 7, ())]


def test_columns_are_given_row_by_row() -> None:
    headers = [(("a", b"1"),), ()]
    rows = Outgoing("t", [b"a", b"b"], [b"1", b"2"], range(2), [0, 9], headers).rows()
    assert list(rows) == [(b"a", b"1", 0, 0, headers[0]), (b"b", b"2", 1, 9, ())]


def test_no_time_is_the_time_of_sending() -> None:
    assert [row[3] for row in Outgoing("t", [b"a"], [b"1"], 0).rows()] == [0]


def test_no_writer_has_a_send_of_its_own() -> None:
    own = [
        f"{path.name}: {found.name}.{method.name}"
        for path in (*sources(), *suite())
        for found in ast.walk(parsed(path))
        if isinstance(found, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id.endswith(("Writer", "Sender")) for base in found.bases)
        for method in found.body
        if isinstance(method, ast.FunctionDef) and method.name in ("send", "send_many")
    ]
    assert own == []
