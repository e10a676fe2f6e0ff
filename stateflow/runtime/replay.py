"""Replaying input into state: the part of a restore that an *eventual* changelog leaves to do.

Beside the committed offset stands an earlier one, with the event time of that place. From there the input is run
again through the stage, with its outputs dropped, since they were committed when it was run first. Windows pass
over what they contain, so it does not matter how old the found state of each is. Lateness and closing follow from
the watermark records in the same log, so they come out as they did.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from stateflow.changelog.eventual import Moment
from stateflow.errors import StateCorrupt
from stateflow.log.base import Committed
from stateflow.record import OffsetRange, TopicPartition
from stateflow.runtime.wiring import TaskWiring

_FIELD = "replay"


@dataclass(frozen=True, slots=True)
class Replay:
    """What to replay of one input partition, and the metadata of the watermarks where it begins."""

    source: TopicPartition
    offsets: OffsetRange
    event_time: str


def is_eventual(wiring: TaskWiring) -> bool:
    """True for a task whose changelog needs a replay of input beside it."""
    return any(store.changelog_policy == "eventual" for store in wiring.stage.stores)


def with_replay(metadata: str, moment: Moment | None) -> str:
    """Offset metadata that also says from where input must be replayed."""
    if moment is None:
        return metadata
    fields = json.loads(metadata)
    fields[_FIELD] = [moment.offset_next, moment.event_time]
    return json.dumps(fields, separators=(",", ":"))


def replay_moment(metadata: str) -> Moment | None:
    """What ``with_replay`` added, if anything. Raises ``StateCorrupt`` for metadata of another writer."""
    if not metadata:
        return None
    try:
        found = json.loads(metadata).get(_FIELD)
        return None if found is None else Moment(int(found[0]), str(found[1]))
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise StateCorrupt(
            f"the metadata beside a committed input offset cannot be read ({error}): {metadata[:80]!r}.",
            action="another program commits offsets under this application's group id; give it a group of its own,"
            " then reset this application's offsets with `stateflow reset`.",
        ) from error


def needed_next(committed: Committed) -> int:
    """The first offset of an input partition that a restore may still read."""
    moment = replay_moment(committed.metadata)
    return committed.offset_next if moment is None else min(moment.offset_next, committed.offset_next)


def replay_of(wiring: TaskWiring, inputs: Mapping[TopicPartition, Committed]) -> Replay | None:
    """The replay that a task must begin with; None for every task without an eventual changelog.

    An empty one is left where everything was logged: event time must still close what it closed before.
    """
    (source, *others) = wiring.inputs
    committed = inputs.get(source)
    if committed is None or not is_eventual(wiring):
        return None
    assert not others, "a stage with an eventual changelog reads one log"
    moment = replay_moment(committed.metadata)
    if moment is None:
        return Replay(source, OffsetRange(committed.offset_next, committed.offset_next), committed.metadata)
    return Replay(source, OffsetRange(moment.offset_next, committed.offset_next), moment.event_time)
