"""One record's scope: its writes are taken back and its sends dropped when it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from stateflow.store.dirty import DirtyStore


class UndoScope:
    """Holds sends back while a scope is open; outside one they go out at once."""

    def __init__(self, stores: Mapping[str, DirtyStore]) -> None:
        self._stores = stores
        self._held: list[Callable[[], None]] | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """A scope; left by an exception, nothing that was done in it remains. Scopes do not nest."""
        assert self._held is None, "undoable scopes do not nest"
        marks = {name: store.mark() for name, store in self._stores.items()}
        self._held = []
        try:
            yield
        except BaseException:
            self._held = None
            for name, mark in marks.items():
                self._stores[name].rollback(mark)
            raise
        held, self._held = self._held, None
        for name, mark in marks.items():
            self._stores[name].release(mark)
        for send in held:
            send()

    def do(self, send: Callable[[], None]) -> None:
        """Send now, or when the scope has succeeded."""
        if self._held is None:
            send()
        else:
            self._held.append(send)
