"""Whose membership it is that a static member was fenced by: its own of before, a dead one's, or a living one's.

A coordinator keeps on disk what a group had agreed on last. While members join it gives out ids that only it knows. If
it ends then, the next one knows the ids of before, and fences whoever comes back with a newer one
(``FENCED_INSTANCE_ID``). A member whose name another process has taken meets the same. They are told apart by who has
the name:

- This member by an id of before: nobody else can have that one, so the coordinator has gone back to it.
- Nobody: whoever had it is gone.
- Somebody else, and the group had agreed on this member by its present id: another process, which has joined since.
  That id was on disk before this member heard of the agreement, so no coordinator goes back behind it.
- Somebody else who stays for longer than anybody does without a sign of life: another process, which lives.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from stateflow.clock import Clock
from stateflow.errors import BrokerUnreachable, StateflowError
from stateflow.log.kafka.client_log import client_log
from stateflow.log.kafka.settings import Settings

_OWN_IDS_MAX = 100
"""Ids of former lives that are remembered; a coordinator goes back to one of the last two."""
_LOOK_SECONDS = 1.0
_SESSIONS = 2
"""A coordinator gives a member that it finds on disk a session from then on. One that came into office between two
looks, unseen, has put off the end of a dead member by no more than another session."""
_SESSION_MARGIN_SECONDS = 1.0
_REFUSALS_MAX = 10
"""So many answers in a row that tell nothing are not taken for a passing trouble of the brokers."""


@dataclass(frozen=True, slots=True)
class NameHolder:
    """The member that has a name of a group (``group.instance.id``), as the coordinator tells.

    ``is_stable`` is False amid a rebalance: members that are waited for need give no sign of life then.
    """

    member_id: str
    is_stable: bool


class Verdict(enum.Enum):
    """What is known of the holder of a name."""

    FREE = "free"
    """Nobody else's: this member may join again."""
    HELD = "held"
    """Another process has it."""
    OPEN = "open"
    """Not decided yet: ask again."""


class OwnIds:
    """What the coordinator has called one member so far, in groups that have agreed on it by these ids."""

    def __init__(self) -> None:
        self._ids: deque[str] = deque(maxlen=_OWN_IDS_MAX)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._ids

    def note(self, member_id: str) -> None:
        """Remember one more; empty ones and known ones change nothing."""
        if member_id and member_id not in self._ids:
            self._ids.append(member_id)


class TakenName:
    """The name of a static member that was fenced, until it is known whether it may join again.

    ``holder(group, name)`` asks the coordinator who has a name of a group. The settings are the member's. With
    ``is_agreed`` the group had agreed on the member by the id that it was fenced with, and no client of its own but the
    one in use can have joined since.
    """

    def __init__(
        self,
        settings: Settings,
        holder: Callable[[str, str], NameHolder | None],
        own: OwnIds,
        clock: Clock,
        *,
        is_agreed: bool,
    ) -> None:
        self._is_agreed = is_agreed
        self._group, self._name = str(settings["group.id"]), str(settings["group.instance.id"])
        self._holder = holder
        self._own = own
        self._session_seconds = int(settings["session.timeout.ms"]) / 1000
        self._clock = clock
        self._next_seconds = float("-inf")
        self._refusals = 0
        self._seen = ""
        """Who held it in a stable group at the last look."""
        self._since_seconds = self._looked_seconds = 0.0
        self._verdict = Verdict.OPEN

    def ask(self) -> Verdict:
        """What is known by now; asks the coordinator at most once a second. A decision stays.

        A coordinator that does not answer is waited for. Raises ``BrokerRefused`` when brokers refuse to tell.
        """
        if self._verdict is Verdict.OPEN and not self.rest_seconds():
            self._verdict = self._look()
            self._next_seconds = self._clock.monotonic_seconds() + _LOOK_SECONDS
        return self._verdict

    def rest_seconds(self) -> float:
        """How long there is nothing to ask."""
        return max(0.0, self._next_seconds - self._clock.monotonic_seconds())

    def _look(self) -> Verdict:
        asked_seconds = self._clock.monotonic_seconds()
        try:
            holder = self._holder(self._group, self._name)
        except StateflowError as error:
            self._not_told(error)
            return Verdict.OPEN
        self._refusals = 0
        if holder is None or holder.member_id in self._own:
            return Verdict.FREE
        if self._is_agreed:
            return Verdict.HELD
        # One who has not looked for so long may have missed another coordinator, too.
        is_same = (
            holder.member_id == self._seen and asked_seconds - self._looked_seconds < self._session_seconds
        )
        self._looked_seconds = self._clock.monotonic_seconds()
        if not (is_same and holder.is_stable):
            self._seen = holder.member_id if holder.is_stable else ""
            self._since_seconds = self._looked_seconds
            client_log.warning(
                "Another member of group %s has the name %s (%s): this one waits to see whether it is alive.",
                self._group,
                self._name,
                holder.member_id,
            )
        alive_after_seconds = _SESSIONS * self._session_seconds + _SESSION_MARGIN_SECONDS
        is_alive = asked_seconds - self._since_seconds > alive_after_seconds
        return Verdict.HELD if is_alive else Verdict.OPEN

    def _not_told(self, error: StateflowError) -> None:
        """What was seen before counts no longer: the next coordinator gives all members another session."""
        self._seen = ""
        self._refusals += not isinstance(error, BrokerUnreachable)
        if self._refusals >= _REFUSALS_MAX:
            raise error
        client_log.info("Who has the name %s in group %s cannot be seen: %s", self._name, self._group, error)
