"""The bounds that numbers given by people have, and how they are said: the same in options and in code."""

from __future__ import annotations

import math


def is_finite_from(value: float, low: float, *, is_above: bool) -> bool:
    """Whether a value is a finite number of at least ``low``, or above it (``is_above``).

    No comparison holds for NaN, so a check of the bounds alone lets it pass.
    """
    return math.isfinite(value) and (value > low if is_above else value >= low)


def finite_text(low: float, *, is_above: bool) -> str:
    """What such a number is called: ``finite number above 0``."""
    return f"finite number {'above' if is_above else 'of at least'} {low:g}"
