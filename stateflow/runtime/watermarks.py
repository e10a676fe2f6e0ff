"""Event-time progress of a task: the minimum over everything that feeds it.

A task that reads source topics has one upstream per topic. A task behind a re-key step has one upstream per task
of the stage before it: each of those announces its own progress in *watermark records*, so a partition that is
read faster than its neighbours never makes the neighbours' records late. An upstream that has reached the end of
its input and stays silent announces itself *idle* and is left out until it speaks again
(the scheme of Akidau et al., "The Dataflow Model", VLDB 2015, with Flink's idle inputs).

The marks travel with the committed input offsets, as the metadata string beside them, so they are exactly as
durable as the position that they describe.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence

from stateflow.errors import StateCorrupt
from stateflow.operators.marks import NO_OTHERS_MS

UNKNOWN_MS = -1
"""Before the first record of an upstream: nothing can be late."""

_RECORD = struct.Struct(">iqB")
_IDLE = 1
_METADATA_VERSION = 1


class Watermarks:
    """Marks of ``upstreams`` inputs, each only ever rising, and their minimum, which only ever rises too."""

    def __init__(self, upstreams: int) -> None:
        assert upstreams > 0, "a task has at least one input"
        self._marks_ms = [UNKNOWN_MS] * upstreams
        self._idle: set[int] = set()
        self._reached_ms = UNKNOWN_MS

    @property
    def upstreams(self) -> int:
        """Number of inputs."""
        return len(self._marks_ms)

    @property
    def value_ms(self) -> int:
        """Event time up to which all inputs are complete; ``UNKNOWN_MS`` until each has spoken or is idle."""
        return self._reached_ms

    def observe(self, upstream: int, mark_ms: int, *, idle: bool = False) -> bool:
        """Note an upstream's progress; True when ``value_ms`` rose.

        Raises ``IndexError`` for an upstream that does not exist: the log and the catalog disagree.
        """
        self._marks_ms[upstream] = max(self._marks_ms[upstream], mark_ms)
        if idle:
            self._idle.add(upstream)
        else:
            self._idle.discard(upstream)
        return self._rise()

    def mark_ms(self, upstream: int) -> int:
        """How far one upstream has come."""
        return self._marks_ms[upstream]

    def least_of_others(self, upstream: int) -> int:
        """The mark of the least of the other upstreams, idle ones left out; ``NO_OTHERS_MS`` without any."""
        others = [
            mark for index, mark in enumerate(self._marks_ms) if index != upstream and index not in self._idle
        ]
        return min(others, default=NO_OTHERS_MS)

    def _rise(self) -> bool:
        awake = [mark for index, mark in enumerate(self._marks_ms) if index not in self._idle]
        # With every input idle nothing is in flight any more, so the furthest one is the truth.
        value = min(awake) if awake else max(self._marks_ms)
        if value <= self._reached_ms:
            return False
        self._reached_ms = value
        return True

    def assume(self, other: Watermarks) -> None:
        """Become equal to another: the one call after which marks may be lower than before."""
        self._marks_ms, self._idle = list(other._marks_ms), set(other._idle)
        self._reached_ms = other._reached_ms

    def encode(self) -> str:
        """The marks as an offset's metadata: short JSON, marks as distances from the smallest."""
        known = [mark for mark in self._marks_ms if mark != UNKNOWN_MS]
        base = min(known, default=0)
        fields: dict[str, object] = {
            "v": _METADATA_VERSION,
            "at": self._reached_ms,
            "base": base,
            "d": [None if mark == UNKNOWN_MS else mark - base for mark in self._marks_ms],
        }
        if self._idle:
            fields["idle"] = sorted(self._idle)
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def decode(cls, metadata: str, upstreams: int) -> Watermarks:
        """Marks read back; all unknown for empty metadata, ``StateCorrupt`` for metadata of another writer.

        When the number of upstreams is not the recorded one, all of them start from the recorded minimum.
        """
        marks = cls(upstreams)
        if not metadata:
            return marks
        try:
            fields = json.loads(metadata)
            if fields["v"] != _METADATA_VERSION:
                raise ValueError(f"version {fields['v']}")
            recorded = [UNKNOWN_MS if d is None else fields["base"] + d for d in fields["d"]]
            marks._reached_ms = int(fields["at"])
        except (ValueError, KeyError, TypeError) as error:
            raise StateCorrupt(
                f"the metadata beside a committed input offset cannot be read ({error}): {metadata[:80]!r}.",
                action="another program commits offsets under this application's group id; give it a group of its"
                " own, then reset this application's offsets with `stateflow reset`.",
                metadata=metadata[:200],
            ) from error
        if len(recorded) == upstreams:
            marks._marks_ms = recorded
            marks._idle = {index for index in fields.get("idle", ()) if index < upstreams}
        else:
            marks._marks_ms = [min(recorded, default=UNKNOWN_MS)] * upstreams
        return marks

    @classmethod
    def merged_minimum(cls, several: Sequence[Watermarks], upstreams: int) -> Watermarks:
        """Marks for a task that takes over keys of several tasks: the lowest of each, so nothing becomes late.

        Used by repartition; with another number of upstreams all start from the lowest mark of all.
        """
        merged = cls(upstreams)
        if not several:
            return merged
        merged._reached_ms = min(marks._reached_ms for marks in several)
        if all(marks.upstreams == upstreams for marks in several):
            columns = zip(*(marks._marks_ms for marks in several), strict=True)
            merged._marks_ms = [min(column) for column in columns]
        else:
            lowest = min(mark for marks in several for mark in marks._marks_ms)
            merged._marks_ms = [lowest] * upstreams
        return merged


def encode_record(upstream: int, mark_ms: int, *, idle: bool) -> bytes:
    """The value of the ``sf-wm`` header: upstream int32, mark int64, flags uint8 (1 = idle), big-endian."""
    return _RECORD.pack(upstream, mark_ms, _IDLE if idle else 0)


def decode_record(header: bytes) -> tuple[int, int, bool]:
    """Upstream, mark and idleness out of a ``sf-wm`` header; ``StateCorrupt`` when it is malformed."""
    if len(header) != _RECORD.size:
        raise StateCorrupt(
            f"a watermark record on a repartition topic has {len(header)} bytes instead of {_RECORD.size}.",
            action="something else writes to this repartition topic; only the application itself may.",
        )
    upstream, mark_ms, flags = _RECORD.unpack(header)
    return upstream, mark_ms, bool(flags & _IDLE)


def marks_in(headers: Iterable[tuple[str, bytes]], name: str) -> bytes | None:
    """The header of that name, if the record has one."""
    return next((value for key, value in headers if key == name), None)
