"""What a fenced member makes of who has its name."""

from __future__ import annotations

import pytest

from stateflow.clock import ManualClock
from stateflow.errors import BrokerRefused, BrokerUnreachable, StateflowError
from stateflow.log.kafka.settings import KafkaOptions, member_settings
from stateflow.log.kafka.taken_names import NameHolder, OwnIds, TakenName, Verdict

SESSION_SECONDS = 10
SETTINGS = member_settings("b", {}, KafkaOptions(session_timeout_ms=SESSION_SECONDS * 1000), "g", "w0")
OTHER = NameHolder("other", is_stable=True)
UNREACHABLE = BrokerUnreachable("no answer.", action="wait.")
REFUSED = BrokerRefused("no.", action="ask for the right.")


class Coordinator:
    """Answers what it is told to, and counts the questions."""

    def __init__(self, holder: NameHolder | StateflowError | None) -> None:
        self.holder = holder
        self.asked = 0

    def ask(self, group: str, name: str) -> NameHolder | None:
        assert (group, name) == ("g", "w0")
        self.asked += 1
        if isinstance(self.holder, StateflowError):
            raise self.holder
        return self.holder


class Fenced:
    """A member that was called ``own`` and ``newer``, and was fenced at the beginning of time: by the newer id if the
    group ``is_agreed`` on it, else by one that nobody had agreed on."""

    def __init__(self, holder: NameHolder | StateflowError | None, *, is_agreed: bool = False) -> None:
        own = OwnIds()
        for member_id in ("own", "", "newer", "own"):
            own.note(member_id)
        self.clock = ManualClock()
        self.coordinator = Coordinator(holder)
        self.name = TakenName(SETTINGS, self.coordinator.ask, own, self.clock, is_agreed=is_agreed)

    def decided(self, seconds: float) -> Verdict:
        """What is known after so long, asked all the time."""
        for _ in range(round(seconds * 4)):
            if self.name.ask() is not Verdict.OPEN:
                break
            self.clock.advance(seconds=0.25)
        return self.name.ask()


@pytest.mark.parametrize("is_stable", [True, False])
def test_a_former_life_of_its_own_is_known_at_once(is_stable: bool) -> None:
    assert Fenced(NameHolder("own", is_stable)).name.ask() is Verdict.FREE


def test_a_name_that_nobody_has_is_free() -> None:
    assert Fenced(None).name.ask() is Verdict.FREE


@pytest.mark.parametrize("is_stable", [True, False])
def test_another_than_the_one_that_the_group_had_agreed_on_has_joined_since(is_stable: bool) -> None:
    fenced = Fenced(NameHolder("other", is_stable), is_agreed=True)
    assert fenced.name.ask() is Verdict.HELD
    assert Fenced(NameHolder("own", is_stable), is_agreed=True).name.ask() is Verdict.FREE
    assert Fenced(None, is_agreed=True).name.ask() is Verdict.FREE


def test_another_that_stays_is_alive() -> None:
    fenced = Fenced(OTHER)
    assert fenced.decided(2 * SESSION_SECONDS) is Verdict.OPEN, "it may be dead, and its session not over"
    assert fenced.decided(3) is Verdict.HELD
    fenced.coordinator.holder = None
    fenced.clock.advance(seconds=60)
    assert fenced.name.ask() is Verdict.HELD, "a decision stays"


def test_another_whose_session_ends_was_dead() -> None:
    fenced = Fenced(OTHER)
    assert fenced.decided(SESSION_SECONDS) is Verdict.OPEN
    fenced.coordinator.holder = None
    assert fenced.decided(2) is Verdict.FREE


@pytest.mark.parametrize(
    "between", [UNREACHABLE, NameHolder("other", is_stable=False), NameHolder("third", is_stable=True)]
)
def test_what_was_seen_before_an_outage_a_rebalance_or_another_holder_does_not_count(
    between: NameHolder | StateflowError,
) -> None:
    """Whoever is dead has another session from then on."""
    fenced = Fenced(OTHER)
    assert fenced.decided(2 * SESSION_SECONDS - 1) is Verdict.OPEN
    fenced.coordinator.holder = between
    assert fenced.decided(60 if between is UNREACHABLE else 5) is Verdict.OPEN
    fenced.coordinator.holder = OTHER
    assert fenced.decided(2 * SESSION_SECONDS) is Verdict.OPEN
    assert fenced.decided(3) is Verdict.HELD


def test_whoever_was_frozen_looks_anew() -> None:
    fenced = Fenced(OTHER)
    fenced.decided(5)
    fenced.clock.advance(seconds=60)
    assert fenced.decided(2 * SESSION_SECONDS) is Verdict.OPEN


def test_the_coordinator_is_asked_once_a_second() -> None:
    fenced = Fenced(OTHER)
    fenced.decided(10)
    assert fenced.coordinator.asked == 11
    assert 0 < fenced.name.rest_seconds() <= 1


def test_brokers_that_refuse_to_tell_are_not_asked_for_ever() -> None:
    fenced = Fenced(REFUSED)
    assert fenced.decided(5) is Verdict.OPEN, "it may be a passing trouble"
    with pytest.raises(BrokerRefused):
        fenced.decided(10)
