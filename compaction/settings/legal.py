"""Numbers that callers give, refused where they make no sense, before they turn predictions into nonsense."""

from __future__ import annotations

import math

from stateflow.errors import ConfigError


def require_number(name: str, value: float | None, *, low: float = 0.0, is_above: bool = False) -> None:
    """Raise ``ConfigError`` unless a value is None, or a finite number of at least ``low``, or above it (``is_above``).

    No comparison holds for NaN, so a check of the bounds alone lets it pass.
    """
    if value is None or (math.isfinite(value) and (value > low if is_above else value >= low)):
        return
    bound = f"above {low:g}" if is_above else f"of at least {low:g}"
    raise ConfigError(f"{name} is {value}.", action=f"Give a finite number {bound}.", setting=name)
