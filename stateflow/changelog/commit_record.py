"""The commit record: the last record of each commit in each changelog partition of the task.

It says that everything before it in its partition is committed, and for which input position the state then stands. It
is written under both guarantees, and by whoever moves state. All commit records of a partition share one reserved key,
so compaction keeps the newest. The bytes of the value, big-endian, are described in ``docs/formats.md``::

    uint8 format (2) · uint8 flags (0) · int64 owner · int64 sequence · uint32 records ‖ input position

Format 1, of version 0.1, is read: it had offsets, each with JSON metadata beside it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from stateflow.changelog.fields import Fields
from stateflow.changelog.format import RESERVED_KEY_PREFIX
from stateflow.changelog.position import InputPosition, from_metadata
from stateflow.errors import StateCorrupt
from stateflow.record import TopicPartition

COMMIT_KEY = RESERVED_KEY_PREFIX + b"commit"

_FORMAT = 2
_HEAD = struct.Struct(">BBqqI")


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """One commit of one task.

    ``owner`` counts the owners of the task, ``sequence`` its commits; both only rise and never restart.
    ``records`` is the number of changes this commit wrote to the partition the record stands in. ``position`` is what
    of the input is contained in the state.
    """

    owner: int
    sequence: int
    records: int
    position: InputPosition

    def encode(self) -> bytes:
        """The record's value; equal records are equal bytes."""
        return _HEAD.pack(_FORMAT, 0, self.owner, self.sequence, self.records) + self.position.encode()

    @classmethod
    def decode(cls, value: bytes | None) -> CommitRecord:
        """The record behind ``COMMIT_KEY``; ``StateCorrupt`` for anything that ``encode`` cannot have
        written."""
        try:
            return cls._decode(value or b"")
        except (struct.error, UnicodeDecodeError, ValueError, StateCorrupt) as error:
            raise StateCorrupt(
                f"a commit record in a changelog cannot be read ({error}): {(value or b'')[:40].hex()}.",
                action="upgrade stateflow if a newer version has written this changelog; otherwise find out"
                " which program writes to it, and restore the application from an image or savepoint.",
            ) from error

    @classmethod
    def _decode(cls, value: bytes) -> CommitRecord:
        version, flags, owner, sequence, records = _HEAD.unpack_from(value)
        if flags or version not in (1, _FORMAT):
            raise ValueError(f"format {version} with flags {flags:#x}, this version knows format {_FORMAT}")
        rest = value[_HEAD.size :]
        position = _inputs_of_format_1(Fields(rest)) if version == 1 else InputPosition.decode(rest)
        return cls(owner, sequence, records, position)


def _inputs_of_format_1(fields: Fields) -> InputPosition:
    (count,) = fields.unpack(">H")
    offsets: dict[TopicPartition, int] = {}
    position = InputPosition()
    for _ in range(count):
        topic = fields.text()
        partition, offset_next = fields.unpack(">iq")
        offsets[TopicPartition(topic, partition)] = offset_next
        metadata = fields.text()
        position = from_metadata(metadata) if metadata else position  # the same beside each of one commit
    fields.end()
    if len(offsets) != count:
        raise ValueError(f"{count} inputs, {len(offsets)} of them different")
    return replace(position, offsets=offsets)
