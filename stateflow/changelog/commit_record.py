"""The commit record: the last record of each commit in each changelog partition of the task.

It says that everything before it in its partition is decided, and for which input offsets the state then
stands. All commit records of a partition share one reserved key, so compaction keeps the newest. The bytes
of the value, big-endian, are described in ``docs/formats.md``::

    uint8 format (1) · uint8 flags (0) · int64 owner · int64 sequence · uint32 records
    uint16 inputs, each: uint16 length ‖ topic (UTF-8) · int32 partition · int64 offset_next
                         uint16 length ‖ metadata (UTF-8)
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from stateflow.changelog.format import RESERVED_KEY_PREFIX
from stateflow.errors import StateCorrupt
from stateflow.log.base import Committed
from stateflow.record import TopicPartition

COMMIT_KEY = RESERVED_KEY_PREFIX + b"commit"

_FORMAT = 1
_HEAD = struct.Struct(">BBqqIH")
_LENGTH = struct.Struct(">H")
_OFFSET = struct.Struct(">iq")


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """One commit of one task.

    ``owner`` counts the owners of the task, ``sequence`` its commits; both only rise and never restart.
    ``records`` is the number of changes this commit wrote to the partition the record stands in. ``inputs``
    are the positions, with the watermarks beside them, up to which input is contained in the state.
    """

    owner: int
    sequence: int
    records: int
    inputs: Mapping[TopicPartition, Committed]

    def encode(self) -> bytes:
        """The record's value. Inputs are written in the order of their names, so equal records are equal
        bytes."""
        parts = [_HEAD.pack(_FORMAT, 0, self.owner, self.sequence, self.records, len(self.inputs))]
        for (topic, partition), committed in sorted(self.inputs.items()):
            parts += [_text(topic), _OFFSET.pack(partition, committed.offset_next), _text(committed.metadata)]
        return b"".join(parts)

    @classmethod
    def decode(cls, value: bytes | None) -> CommitRecord:
        """The record behind ``COMMIT_KEY``; ``StateCorrupt`` for anything that ``encode`` cannot have
        written."""
        try:
            return cls._decode(value or b"")
        except (struct.error, UnicodeDecodeError, ValueError) as error:
            raise StateCorrupt(
                f"a commit record in a changelog cannot be read ({error}): {(value or b'')[:40].hex()}.",
                action="upgrade stateflow if a newer version has written this changelog; otherwise find out"
                " which program writes to it, and restore the application from an image or savepoint.",
            ) from error

    @classmethod
    def _decode(cls, value: bytes) -> CommitRecord:
        version, flags, owner, sequence, records, count = _HEAD.unpack_from(value)
        if (version, flags) != (_FORMAT, 0):
            raise ValueError(f"format {version} with flags {flags:#x}, this version knows format {_FORMAT}")
        at = _HEAD.size
        inputs: dict[TopicPartition, Committed] = {}
        for _ in range(count):
            topic, at = _read_text(value, at)
            partition, offset_next = _OFFSET.unpack_from(value, at)
            metadata, at = _read_text(value, at + _OFFSET.size)
            inputs[TopicPartition(topic, partition)] = Committed(offset_next, metadata)
        if at != len(value) or len(inputs) != count:
            raise ValueError(f"{len(value)} bytes where {at} were announced")
        return cls(owner, sequence, records, inputs)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def _read_text(value: bytes, at: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(value, at)
    first, after = at + _LENGTH.size, at + _LENGTH.size + length
    if after > len(value):
        raise ValueError(f"a text of {length} bytes runs past the end")
    return value[first:after].decode(), after
