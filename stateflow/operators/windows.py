"""Windows in event time, and the index that closes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args

from stateflow.changelog.eventual import Eventual
from stateflow.duration import declared_ms
from stateflow.errors import GraphError
from stateflow.operators.policy import check_late_policy
from stateflow.state.layout import split_window
from stateflow.store.base import StoreReader

Emit = Literal["on_update", "on_close"]
_EMITS: tuple[Emit, ...] = get_args(Emit)

ZERO = timedelta(0)


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of equal size, side by side, aligned to 1970 UTC: each record is in exactly one.

    ``grace`` is how long after its end a window still takes records; what comes later is late.
    Raises ``GraphError`` for a size below 1 ms, a negative grace, or fractions of a millisecond.
    """

    size: timedelta
    grace: timedelta = ZERO

    def __post_init__(self) -> None:
        if self.size_ms < 1 or self.grace_ms < 0:
            raise GraphError(
                f"A window of {self.size} with a grace of {self.grace} cannot be.",
                action="Give a size of 1 ms or more and a grace that is not negative.",
            )

    @property
    def size_ms(self) -> int:
        """Size, ms."""
        return declared_ms("size of a window", self.size)

    @property
    def grace_ms(self) -> int:
        """Grace, ms."""
        return declared_ms("grace of a window", self.grace)


def check_window(window: object, emit: object, late: object, changelog: object) -> None:
    """Raise ``GraphError`` for what ``.window(…)`` does not take: a misspelt word would swallow every result."""
    if not isinstance(window, Tumbling):
        raise GraphError(f"{window!r} is no window.", action="Give sf.Tumbling(size, grace=…).")
    if emit not in _EMITS:
        raise GraphError(f"A window was given emit={emit!r}.", action="Give emit='on_update' or 'on_close'.")
    check_late_policy("A window", late)
    if changelog is not None and not isinstance(changelog, Eventual):
        raise GraphError(
            f"A window was given changelog={changelog!r}.",
            action="Give sf.Eventual(intensity=…), or leave it out to have every change logged.",
        )


class WindowIndex:
    """Window start → keys, so that closing needs no scan. Derived, never logged.

    Built by one scan of the store when event time first moves, kept up to date from then on; holds one
    entry per window in the store. ``add`` before that is not needed: the scan will find the window.
    """

    def __init__(self, store: StoreReader) -> None:
        self._store = store
        self._keys: dict[int, set[bytes]] | None = None

    def add(self, start_ms: int, store_key: bytes) -> None:
        """A window was opened."""
        if self._keys is not None:
            self._keys.setdefault(start_ms, set()).add(store_key)

    def take_until(self, start_ms: int) -> Iterable[tuple[int, list[bytes]]]:
        """Remove and give every window that starts at or before ``start_ms``: oldest first, keys sorted."""
        keys = self._built()
        for due_ms in sorted(start for start in keys if start <= start_ms):
            yield due_ms, sorted(keys.pop(due_ms))

    def last_start_ms(self) -> int | None:
        """Where the latest window starts; None without any."""
        return max(self._built(), default=None)

    def _built(self) -> dict[int, set[bytes]]:
        if self._keys is None:
            self._keys = {}
            for store_key, _ in self._store.scan():
                self._keys.setdefault(split_window(store_key)[1], set()).add(store_key)
        return self._keys
