"""Replaying input into state: the part of a restore that an *eventual* changelog leaves to do.

Beside the input position stands an earlier moment of the input, with the event time there. From there the input is run
again through the stage, with its outputs dropped, since they were committed when it was run first. Windows pass
over what they contain, so it does not matter how old the found state of each is. Lateness and closing follow from
the log, so they come out as they did.

Windows that closed may still be in what was found: they went without a word, where the log had never heard of them. So
a replay first closes, unsaid, all that was closed where it begins. Where the commit left windows for later turns, these
are not among them.
"""

from __future__ import annotations

from dataclasses import dataclass

from stateflow.changelog.event_time import EventTime
from stateflow.changelog.position import InputPosition
from stateflow.record import OffsetRange, TopicPartition
from stateflow.runtime.task.wiring import TaskWiring


@dataclass(frozen=True, slots=True)
class Replay:
    """What to replay of one input partition, and the event time where it begins."""

    source: TopicPartition
    offsets: OffsetRange
    event_time: EventTime
    has_closed_all: bool = True
    """False for a commit between two turns of closing windows: what is due at its end is left to turns."""


def is_eventual(wiring: TaskWiring) -> bool:
    """True for a task whose changelog needs a replay of input beside it."""
    return any(store.changelog_policy == "eventual" for store in wiring.stage.stores)


def replay_of(wiring: TaskWiring, position: InputPosition) -> Replay | None:
    """The replay that a task must begin with; None for every task without an eventual changelog.

    An empty one is left where everything was logged: event time must still close what it closed before.
    """
    source = wiring.inputs[0]
    offset_next = position.offsets.get(source)
    if offset_next is None or not is_eventual(wiring):
        return None
    assert len(wiring.inputs) == 1, "a stage with an eventual changelog reads one log"
    moment = position.replay_from
    if moment is None:
        return Replay(source, OffsetRange(offset_next, offset_next), position.event_time)
    return Replay(
        source, OffsetRange(moment.offset_next, offset_next), moment.event_time, not position.is_closing
    )
