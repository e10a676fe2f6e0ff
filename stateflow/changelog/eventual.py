"""The *eventual* changelog of a window store: which windows a commit writes, and what a restore must replay.

Continuous eventual checkpointing (Sebepou and Magoutis, DSN 2011). A commit does not write every window it has
changed, but the few whose changes have waited longest, and says from which input offset the others can be computed
again. A window that opens and closes between two of its turns is never written at all. Two extents grow by
writing less: ``u``, the input to replay, and ``q``, the stretch of the changelog that still holds the newest
record of an open window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from stateflow.changelog.position import Moment
from stateflow.errors import ConfigError
from stateflow.store.base import Change


@dataclass(frozen=True, slots=True)
class Eventual:
    """How much of its changes a window store logs.

    ``intensity`` is the number of windows written per input record: 0 writes none before a bound asks for it,
    1 about as many as there are changes. ``max_replay_records`` bounds ``u``, in offset slots of the input;
    ``max_log_records`` bounds ``q``, in offset slots of the changelog, by writing unchanged windows again.
    Raises ``ConfigError`` for a negative intensity or a bound below 1.
    """

    intensity: float = 0.1
    max_replay_records: int = 100_000
    max_log_records: int | None = None

    def __post_init__(self) -> None:
        bounds = [self.max_replay_records, 1 if self.max_log_records is None else self.max_log_records]
        if not (0 <= self.intensity < math.inf) or min(bounds) < 1:
            raise ConfigError(
                f"an eventual changelog cannot have {self}.",
                action="give an intensity of 0 or more, and bounds of 1 or more.",
            )


@dataclass(frozen=True, slots=True)
class Extents:
    """``u`` and ``q`` as they stand after a commit, in offset slots, and how many windows make them up."""

    replay_records: int
    log_records: int
    logged_windows: int


class EventualChangelog:
    """The open windows of one store, by how long their changes have waited to be logged.

    In memory there is one entry per open window, as in the index that closes them. Used by the task's thread
    alone; after a failed commit it is dropped with the task.

    Args:
        log: stands for the changelog's topic in the windows' covers (``codec.covered.log_id``).
        moment: where the records being processed begin; it never goes back.
    """

    def __init__(self, policy: Eventual, log: bytes, moment: Callable[[], Moment]) -> None:
        self.log = log
        self.is_replaying = False
        self.logged_total = 0
        """Windows written to the changelog, closings not counted."""
        self._policy = policy
        self._moment = moment
        self._unlogged: dict[bytes, Moment] = {}  # in the order of their offsets
        self._logged: dict[bytes, int] = {}  # in the order of their positions in the changelog
        self._position = 0
        self._input_next = 0
        self._credit = 0.0

    # --- what the window step tells --------------------------------------------------------------------

    def restored(self, keys: Iterable[bytes]) -> None:
        """Windows found in the store. Nothing is known of their place in the log, so it is its beginning."""
        self._logged.update(dict.fromkeys(keys, 0))

    def changed(self, keys: Iterable[bytes], records: int) -> None:
        """Windows that ``records`` of the input have touched, or would have, had they not contained them."""
        self._credit += self._policy.intensity * records
        unlogged, moment = self._unlogged, None
        for key in keys:
            if key not in unlogged:
                moment = moment or self._moment()
                unlogged[key] = moment

    # --- what the commit asks --------------------------------------------------------------------------

    def choose(
        self,
        changes: Sequence[Change],
        read_many: Callable[[Sequence[bytes]], list[bytes | None]],
        input_next: int,
        *,
        complete: bool = False,
        says_all: bool = False,
    ) -> list[Change]:
        """What this commit writes to the changelog, sorted by key.

        ``changes`` is the epoch, ``input_next`` the input offset it reaches; ``complete`` leaves nothing to
        replay, ``says_all`` tells of closed windows, too, that the changelog never had: a disk may have them.
        """
        self._input_next = input_next
        tombstones: list[Change] = [
            (key, None) for key, value in changes if value is None and (self._forget(key) or says_all)
        ]
        turns = [key for key in self._turns(complete=complete) if self._take(key)]
        values = read_many(turns)
        written = [(key, value) for key, value in zip(turns, values, strict=True) if value is not None]
        for key, _ in written:
            self._logged[key] = self._position
        self.logged_total += len(written)
        return sorted([*written, *tombstones])

    @property
    def replay_from(self) -> Moment | None:
        """Where a restore that has only the changelog must begin to replay; None when it has all."""
        return next(iter(self._unlogged.values()), None)

    def appended(self, offset_next: int) -> None:
        """The commit is done; the changelog now ends here."""
        self._position = offset_next

    @property
    def extents(self) -> Extents:
        """``u`` and ``q`` after the last commit."""
        oldest = next(iter(self._logged.values()), self._position)
        replay = self.replay_from
        return Extents(
            replay_records=0 if replay is None else max(0, self._input_next - replay.offset_next),
            log_records=self._position - oldest,
            logged_windows=len(self._logged),
        )

    # --- whose turn it is ------------------------------------------------------------------------------

    def _turns(self, *, complete: bool) -> list[bytes]:
        earned, self._credit = int(self._credit), self._credit % 1
        floor = self._input_next - self._policy.max_replay_records
        turns = []
        for index, (key, replay) in enumerate(self._unlogged.items()):
            if index >= earned and replay.offset_next >= floor and not complete:
                break
            turns.append(key)
        return turns + self._left_behind(set(turns))

    def _left_behind(self, chosen: set[bytes]) -> list[bytes]:
        """Unchanged windows whose record lies too far back in the log."""
        if self._policy.max_log_records is None:
            return []
        floor = self._position - self._policy.max_log_records
        behind = (
            key for key, position in self._logged.items() if position < floor and key not in self._unlogged
        )
        # A few at a time: after a restore every window may seem to be behind.
        return [key for key in islice(behind, 1_000) if key not in chosen]

    def _take(self, key: bytes) -> bool:
        self._unlogged.pop(key, None)
        self._logged.pop(key, None)
        return True

    def _forget(self, key: bytes) -> bool:
        """A window has closed; True when the changelog may hold it."""
        self._unlogged.pop(key, None)
        return self._logged.pop(key, None) is not None
