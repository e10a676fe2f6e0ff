"""Numbers that callers give, refused where they make no sense, before they turn predictions into nonsense."""

from __future__ import annotations

from stateflow.errors import ConfigError
from stateflow.finite import finite_text, is_finite_from


def require_number(name: str, value: float | None, *, low: float = 0.0, is_above: bool = False) -> None:
    """Raise ``ConfigError`` unless a value is None, or a finite number from ``low`` on, without it (``is_above``)."""
    if value is not None and not is_finite_from(value, low, is_above=is_above):
        text = finite_text(low, is_above=is_above)
        raise ConfigError(f"{name} is {value}.", action=f"Give a {text}.", setting=name)
