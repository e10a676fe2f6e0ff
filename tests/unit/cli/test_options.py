"""Values of options, as people write them."""

from __future__ import annotations

import click
import pytest

from stateflow.cli.options import Cores, Duration, Number, Size


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("500000", 5e5),
        ("30e6", 3e7),
        ("30MB", 3e7),
        ("30 MiB", 30 << 20),
        ("1.5GiB", 1.5 * (1 << 30)),
        ("2k", 2e3),
    ],
)
def test_sizes_are_read_in_the_units_that_are_printed(text: str, wanted: float) -> None:
    assert Size().convert(text, None, None) == wanted


@pytest.mark.parametrize(("text", "wanted"), [("0.5", 0.5), ("1%", 0.01), ("2.5 %", 0.025), ("1e-3", 0.001)])
def test_cores_are_read_as_they_are_printed(text: str, wanted: float) -> None:
    assert Cores().convert(text, None, None) == pytest.approx(wanted)


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1 mile", "1 MiB/s"])
def test_what_is_neither_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match="30MiB"):
        Size().convert(text, None, None)
    with pytest.raises(click.BadParameter, match="50%"):
        Cores().convert(text, None, None)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-5", "1e999", "many", "0"])
def test_what_is_no_finite_number_in_the_range_is_refused_with_it(text: str) -> None:
    with pytest.raises(click.BadParameter, match="no finite number above 0"):
        Number(is_above=True).convert(text, None, None)
    assert Number().convert("0", None, None) == 0


def test_a_size_is_finite() -> None:
    for kind in (Size(), Cores()):
        with pytest.raises(click.BadParameter, match="too large"):
            kind.convert("1e999", None, None)


def test_a_time_that_must_pass_is_above_zero() -> None:
    with pytest.raises(click.BadParameter, match="above 0"):
        Duration(is_above_zero=True).convert("0s", None, None)
    assert Duration(is_above_zero=True).convert("1ms", None, None) == 0.001
    for kind in (Duration(), Duration(is_above_zero=True)):
        with pytest.raises(click.BadParameter, match="up to 1,000,000,000 s"):  # of infinity, too
            kind.convert("9" * 400, None, None)
    assert Duration().convert("0s", None, None) == 0
