"""The input position: up to where a task's input is contained in its state, and all it takes to go on from there.

It is the content of every commit record, so it is exactly as durable as the state that it describes, whatever the
guarantee; the consumer group holds plain offsets beside it, for tools. A task without any store has no changelog and
so no commit record: there the group's offset metadata holds the position (at most 4,096 bytes on Kafka).
``docs/formats.md`` has the bytes.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stateflow.changelog.event_time import NO_EVENT_TIME, UNKNOWN_MS, EventTime, PortTime
from stateflow.changelog.fields import Fields, text
from stateflow.errors import StateCorrupt
from stateflow.record import TopicPartition

_FORMAT = 1
_HAS_REPLAY, _HAS_BARRIER, _IS_LAST, _HAS_ENDING, _IS_CLOSING = 1, 2, 4, 8, 16
_FLAGS = _HAS_REPLAY | _HAS_BARRIER | _IS_LAST | _HAS_ENDING | _IS_CLOSING
_METADATA_PREFIX = "sf2:"
_METADATA_BYTES_MAX = 4_000
"""Kafka's own limit is 4,096 (``offset.metadata.max.bytes``)."""
_BROKEN = (struct.error, ValueError, KeyError, TypeError, IndexError, AttributeError, binascii.Error)


@dataclass(frozen=True, slots=True)
class Moment:
    """A place in the input, and the event time there."""

    offset_next: int
    event_time: EventTime


@dataclass(frozen=True, slots=True)
class BarrierPoint:
    """A task's point in the newest savepoint barrier that it has part in: a commit."""

    barrier_id: int
    is_last_commit: bool
    """True while nothing has been committed since: the state is still that of the savepoint."""

    def followed(self) -> BarrierPoint:
        """The same with a commit behind it."""
        return replace(self, is_last_commit=False)


@dataclass(frozen=True, slots=True)
class InputPosition:
    """``offsets`` are the next to process of each input partition; partitions never read are absent."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    event_time: EventTime = NO_EVENT_TIME
    replay_from: Moment | None = None
    """Where input must be read again to compute what an eventual changelog has left out."""
    barrier_point: BarrierPoint | None = None
    ending_ms: tuple[int, ...] = ()
    """Where the input was declared to be at its end: how far event time was carried in the stage's steps that wait for
    it, upstream first, as many as it was carried in yet. Nothing has come since."""
    is_closing: bool = False
    """Windows that are due wait for their turn. Only those of the event time in ``replay_from`` have all closed, and
    every change since is in the changelog."""

    def encode(self) -> bytes:
        """The bytes. Offsets are written in the order of their names, so equal positions are equal bytes."""
        flags = (_HAS_REPLAY if self.replay_from else 0) | (_HAS_BARRIER if self.barrier_point else 0)
        flags |= _IS_LAST if self.barrier_point and self.barrier_point.is_last_commit else 0
        flags |= (_HAS_ENDING if self.ending_ms else 0) | (_IS_CLOSING if self.is_closing else 0)
        parts = [struct.pack(">BBH", _FORMAT, flags, len(self.offsets))]
        for (topic, partition), offset_next in sorted(self.offsets.items()):
            parts += [text(topic), struct.pack(">iq", partition, offset_next)]
        parts.append(self.event_time.encode())
        if self.replay_from is not None:
            parts += [struct.pack(">q", self.replay_from.offset_next), self.replay_from.event_time.encode()]
        if self.barrier_point is not None:
            parts.append(struct.pack(">q", self.barrier_point.barrier_id))
        if self.ending_ms:
            parts.append(struct.pack(f">H{len(self.ending_ms)}q", len(self.ending_ms), *self.ending_ms))
        return b"".join(parts)

    @classmethod
    def decode(cls, value: bytes) -> InputPosition:
        """Read back; raises ``StateCorrupt`` for anything that ``encode`` cannot have written."""
        try:
            return cls._decode(Fields(value))
        except _BROKEN as error:
            raise StateCorrupt(
                f"an input position cannot be read ({error}): {value[:40].hex()}.",
                action="upgrade stateflow if a newer version has written it; otherwise find out which program wrote it,"
                " and restore the application from an image or savepoint.",
            ) from error

    @classmethod
    def _decode(cls, fields: Fields) -> InputPosition:
        version, flags, count = fields.unpack(">BBH")
        if version != _FORMAT or flags & ~_FLAGS:
            raise ValueError(f"format {version} with flags {flags:#x}, this version knows format {_FORMAT}")
        offsets: dict[TopicPartition, int] = {}
        for _ in range(count):
            topic = fields.text()
            partition, offset_next = fields.unpack(">iq")
            offsets[TopicPartition(topic, partition)] = offset_next
        event_time = EventTime.read(fields)
        replay_from = barrier_point = None
        if flags & _HAS_REPLAY:
            (offset_next,) = fields.unpack(">q")
            replay_from = Moment(offset_next, EventTime.read(fields))
        if flags & _HAS_BARRIER:
            (barrier_id,) = fields.unpack(">q")
            barrier_point = BarrierPoint(barrier_id, bool(flags & _IS_LAST))
        ending_ms: tuple[int, ...] = ()
        if flags & _HAS_ENDING:
            (count,) = fields.unpack(">H")
            ending_ms = fields.unpack(f">{count}q")
        fields.end()
        return cls(offsets, event_time, replay_from, barrier_point, ending_ms, bool(flags & _IS_CLOSING))

    def needed_next(self) -> dict[TopicPartition, int]:
        """The first offset of each input partition that a restore may still read."""
        if self.replay_from is None:
            return dict(self.offsets)
        floor = self.replay_from.offset_next  # a stage with an eventual changelog reads one log
        return {source: min(floor, offset_next) for source, offset_next in self.offsets.items()}

    def without_barrier_point(self) -> InputPosition:
        """The same position for whoever knows nothing of this barrier."""
        return replace(self, barrier_point=None)


NO_POSITION = InputPosition()


# --- beside a committed offset ----------------------------------------------------------------------


def to_metadata(position: InputPosition) -> str:
    """What a committed offset's metadata says of a task that has no changelog: everything but the offsets.

    Where many upstreams make it too long, each port's marks are written as their minimum: event time is never ahead,
    and upstreams that are not idle announce themselves again.
    """
    found = _metadata(position)
    if len(found) > _METADATA_BYTES_MAX:
        found = _metadata(replace(position, event_time=position.event_time.reduced()))
    return found


def _metadata(position: InputPosition) -> str:
    encoded = replace(position, offsets={}).encode()
    return _METADATA_PREFIX + base64.b64encode(encoded).decode()


def holds_position(metadata: str) -> bool:
    """True for metadata that a commit of stateflow has written; False for a position that was set by hand or reset."""
    return metadata.startswith(_METADATA_PREFIX) or is_of_version_0_1(metadata)


def is_of_version_0_1(metadata: str) -> bool:
    """True for the metadata that version 0.1 wrote beside every committed offset."""
    return metadata.startswith("{")


def from_metadata(metadata: str) -> InputPosition:
    """A position without offsets out of an offset's metadata, this version's or version 0.1's; empty for none.

    Raises ``StateCorrupt`` for metadata of another writer.
    """
    if not metadata:
        return NO_POSITION
    try:
        if metadata.startswith(_METADATA_PREFIX):
            encoded = base64.b64decode(metadata.removeprefix(_METADATA_PREFIX), validate=True)
            return InputPosition._decode(Fields(encoded))
        return _of_version_0_1(json.loads(metadata))
    except _BROKEN as error:
        raise StateCorrupt(
            f"the metadata beside a committed input offset cannot be read ({error}): {metadata[:80]!r}.",
            action="another program commits offsets under this application's group id; give it a group of its own,"
            " then reset this application's offsets with `stateflow reset`.",
            metadata=metadata[:200],
        ) from error


def _of_version_0_1(fields: dict[str, Any]) -> InputPosition:
    replay, point = fields.get("replay"), fields.get("cut")
    return InputPosition(
        event_time=_event_time_0_1(fields),
        replay_from=None
        if replay is None
        else Moment(int(replay[0]), _event_time_0_1(json.loads(str(replay[1])))),
        barrier_point=None if point is None else BarrierPoint(int(point[0]), bool(point[1])),
    )


def _event_time_0_1(fields: dict[str, Any]) -> EventTime:
    if fields["v"] != 1:
        raise ValueError(f"version {fields['v']}")
    base_ms = int(fields.get("base", 0))
    marks = tuple(UNKNOWN_MS if each is None else base_ms + int(each) for each in fields.get("d", ()))
    idle = frozenset(index for index in map(int, fields.get("idle", ())) if 0 <= index < len(marks))
    return EventTime(int(fields.get("at", UNKNOWN_MS)), (PortTime("", marks, idle),) if marks else ())
