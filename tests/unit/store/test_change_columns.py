"""Changes in two columns are the changes that they stand for."""

from __future__ import annotations

import pytest

from stateflow.store.base import ChangeColumns, assert_sorted

PAIRS = [(b"a", b"1"), (b"b", None), (b"c", b"")]


def test_columns_read_as_pairs() -> None:
    columns = ChangeColumns.of(PAIRS)
    assert (columns.keys, columns.values) == ([b"a", b"b", b"c"], [b"1", None, b""])
    assert ChangeColumns.of(columns) is columns
    assert list(columns) == list(columns) == PAIRS
    assert (len(columns), columns[0], columns[-1], columns[1:]) == (3, PAIRS[0], PAIRS[-1], PAIRS[1:])
    assert PAIRS[1] in columns
    assert not ChangeColumns([], [])
    with pytest.raises(IndexError):
        columns[3]


def test_columns_are_of_one_length_and_in_order() -> None:
    with pytest.raises(AssertionError, match="a value for each key"):
        ChangeColumns([b"a"], [])
    assert_sorted(ChangeColumns.of(PAIRS))
    with pytest.raises(AssertionError, match="sorted by key"):
        assert_sorted(ChangeColumns.of(PAIRS[::-1]))
