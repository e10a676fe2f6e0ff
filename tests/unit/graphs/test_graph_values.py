"""What graphs tell each vertex: ends of an edge, what is better known, what a query begins with and comes back with."""

from __future__ import annotations

import pytest

from stateflow.graphs.components import Known
from stateflow.graphs.edges import Changed, both_ends, seen
from stateflow.graphs.neighbourhoods import HOPS_MAX, HopQuery, Visit, first_visit


def test_an_edge_is_one_whichever_end_comes_first() -> None:
    assert seen(("b", "a"), is_removed=False) == seen(("a", "b"), is_removed=False)
    assert seen(("b", "a"), is_removed=False).edge == '["a","b"]'
    assert seen(('a"', "b"), is_removed=False).edge != seen(("a", '"b'), is_removed=False).edge


def test_vertices_are_named_by_text() -> None:
    with pytest.raises(TypeError, match="named by text"):
        seen((1, "a"), is_removed=False)  # type: ignore[arg-type]


def test_both_ends_are_told_of_each_other() -> None:
    assert both_ends(Changed("a", "b", True)) == [Changed("a", "b", True), Changed("b", "a", True)]


def test_a_higher_epoch_is_better_and_in_one_epoch_a_smaller_label() -> None:
    ranked = [Known(2, "a"), Known(2, "b"), Known(1, "a"), Known(0, "c")]
    for place, one in enumerate(ranked):
        assert [one.is_better_than(other) for other in ranked] == [number > place for number in range(4)]


@pytest.mark.parametrize("hops", [-1, HOPS_MAX + 1])
def test_a_query_that_cannot_be_is_refused(hops: int) -> None:
    visit = first_visit(HopQuery("q", "a", 3))
    assert visit == Visit("a", "q", visit.run, 3, 0, 0)
    assert visit.run != first_visit(HopQuery("q", "a", 3)).run
    with pytest.raises(ValueError, match="hops"):
        first_visit(HopQuery("q", "a", hops))
