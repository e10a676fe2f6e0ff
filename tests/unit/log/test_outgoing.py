"""Columns of records on their way."""

from __future__ import annotations

from stateflow.log.outgoing import Outgoing


def test_what_is_given_once_holds_for_every_row() -> None:
    rows = Outgoing("t", [b"a", None], [None, b"2"], 3, 7).rows()
    assert list(rows) == [(b"a", None, 3, 7, ()), (None, b"2", 3, 7, ())]


def test_columns_are_given_row_by_row() -> None:
    headers = [(("a", b"1"),), ()]
    rows = Outgoing("t", [b"a", b"b"], [b"1", b"2"], range(2), [0, 9], headers).rows()
    assert list(rows) == [(b"a", b"1", 0, 1, headers[0]), (b"b", b"2", 1, 9, ())]


def test_no_time_is_the_time_of_sending() -> None:
    assert [row[3] for row in Outgoing("t", [b"a"], [b"1"], 0).rows()] == [0]
