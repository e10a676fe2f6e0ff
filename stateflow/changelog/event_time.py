"""How far event time has come at a task's inputs, as data: what a commit keeps of it, and what stages announce.

A task has *ports*, one per source topic or re-key step that it reads, and each port has *upstreams*: one for a source
topic, one per task of the stage that writes a re-key step's topic. ``docs/formats.md`` has the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stateflow.changelog.fields import Fields, text
from stateflow.errors import StateCorrupt

UNKNOWN_MS = -1
"""Before the first record of an upstream: nothing can be late."""

_ANNOUNCED = struct.Struct(">iqB")
_IDLE, _ENDED = 1, 2

_HAS_IDLE, _HAS_ENDED = 0x10, 0x20
_WIDTHS = {0: "", 4: "I", 8: "Q"}
_UPSTREAMS_MAX = 1_000_000
_MS_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class PortTime:
    """The watermarks of one port's upstreams, ms since 1970 UTC, ``UNKNOWN_MS`` for one that has not spoken."""

    name: str
    """The source topic or re-key step; empty in what version 0.1 wrote, which knew no ports."""
    marks_ms: tuple[int, ...]
    idle: frozenset[int] = frozenset()
    """Upstreams that are left out until they speak again."""
    ended: frozenset[int] = frozenset()
    """Upstreams whose input was declared to be at its end for good."""


@dataclass(frozen=True, slots=True)
class EventTime:
    """Event time of a whole task: what it has reached, and where each upstream stands."""

    reached_ms: int = UNKNOWN_MS
    ports: tuple[PortTime, ...] = ()

    def encode(self) -> bytes:
        """The bytes inside a position: 11 and, per port, 15 and its name and at most 8 per upstream."""
        parts = [struct.pack(">qH", self.reached_ms, len(self.ports))]
        return b"".join([*parts, *map(_encode_port, self.ports)])

    @classmethod
    def read(cls, fields: Fields) -> EventTime:
        """The next event time of some bytes. Raises ``ValueError`` or ``struct.error`` for others."""
        reached_ms, count = fields.unpack(">qH")
        return cls(reached_ms, tuple(_read_port(fields) for _ in range(count)))

    def reduced(self) -> EventTime:
        """The same with each port's upstreams at their least mark: never ahead, and a few bytes per port."""
        return replace(
            self,
            ports=tuple(
                replace(port, marks_ms=(min(port.marks_ms),) * len(port.marks_ms))
                for port in self.ports
                if port.marks_ms
            ),
        )


NO_EVENT_TIME = EventTime()


def merged_minimum(several: Sequence[EventTime]) -> EventTime:
    """For a task that takes over keys of several tasks: the lowest mark of each upstream, so nothing becomes late.

    An upstream is idle or ended only where it is for all. Ports are those that all of them have, with the fewest
    upstreams that any of them knows; the reader gives an upstream that is missing the least mark of its port.
    """
    if not several:
        return NO_EVENT_TIME
    by_name = [{port.name: port for port in each.ports} for each in several]
    common = [name for name in by_name[0] if all(name in ports for ports in by_name)]
    return EventTime(
        min(each.reached_ms for each in several),
        tuple(_least([ports[name] for ports in by_name]) for name in common),
    )


def _least(ports: Sequence[PortTime]) -> PortTime:
    counts = {len(port.marks_ms) for port in ports}
    if len(counts) > 1:
        lowest = min((mark for port in ports for mark in port.marks_ms), default=UNKNOWN_MS)
        return PortTime(ports[0].name, (lowest,) * min(counts))
    columns = zip(*(port.marks_ms for port in ports), strict=True)
    return PortTime(
        ports[0].name,
        tuple(map(min, columns)),
        frozenset.intersection(*(port.idle for port in ports)),
        frozenset.intersection(*(port.ended for port in ports)),
    )


# --- watermark records ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Announced:
    """A watermark record: how far one upstream has come."""

    upstream: int
    mark_ms: int
    idle: bool = False
    """It is silent at the end of its input: do not wait for it."""
    ended: bool = False
    """Its input was declared to be at its end for good: what is pending may close."""

    def encode(self) -> bytes:
        """The value of the ``sf-wm`` header: upstream int32, mark int64, flags uint8 (1 idle, 2 ended), big-endian."""
        flags = (_IDLE if self.idle else 0) | (_ENDED if self.ended else 0)
        return _ANNOUNCED.pack(self.upstream, self.mark_ms, flags)

    @classmethod
    def decode(cls, header: bytes) -> Announced:
        """Read back; ``StateCorrupt`` when it is malformed."""
        if len(header) != _ANNOUNCED.size:
            raise StateCorrupt(
                f"a watermark record on a repartition topic has {len(header)} bytes instead of {_ANNOUNCED.size}.",
                action="something else writes to this repartition topic; only the application itself may.",
            )
        upstream, mark_ms, flags = _ANNOUNCED.unpack(header)
        return cls(upstream, mark_ms, bool(flags & _IDLE), bool(flags & _ENDED))


def header_value(headers: Iterable[tuple[str, bytes]], name: str) -> bytes | None:
    """The header of that name, if the record has one."""
    return next((value for key, value in headers if key == name), None)


# --- bytes of a port --------------------------------------------------------------------------------


def _encode_port(port: PortTime) -> bytes:
    known = [mark for mark in port.marks_ms if mark != UNKNOWN_MS]
    base_ms = min(known, default=UNKNOWN_MS)
    count = len(port.marks_ms)
    width = 0 if len(set(port.marks_ms)) <= 1 else 4 if max(known) - base_ms < 2**32 - 1 else 8
    kind = width | (_HAS_IDLE if port.idle else 0) | (_HAS_ENDED if port.ended else 0)
    parts = [text(port.name), struct.pack(">IBq", count, kind, base_ms)]
    if width:
        distances = [0 if mark == UNKNOWN_MS else mark - base_ms + 1 for mark in port.marks_ms]
        parts.append(struct.pack(f">{count}{_WIDTHS[width]}", *distances))
    parts += [_bitmap(members, count) for members in (port.idle, port.ended) if members]
    return b"".join(parts)


def _read_port(fields: Fields) -> PortTime:
    name = fields.text()
    count, kind, base_ms = fields.unpack(">IBq")
    width = kind & 0x0F
    if width not in _WIDTHS or kind & ~(_HAS_IDLE | _HAS_ENDED | 0x0F):
        raise ValueError(f"watermarks of the unknown kind {kind:#x}")
    if count > _UPSTREAMS_MAX or base_ms < UNKNOWN_MS:
        raise ValueError(f"{count} upstreams from {base_ms} ms on")
    marks = (base_ms,) * count
    if width:
        distances = fields.unpack(f">{count}{_WIDTHS[width]}")
        marks = tuple(UNKNOWN_MS if distance == 0 else base_ms + distance - 1 for distance in distances)
        if max(marks, default=0) > _MS_MAX:
            raise ValueError("a watermark beyond the end of time")
    idle = _members(fields, count) if kind & _HAS_IDLE else frozenset[int]()
    ended = _members(fields, count) if kind & _HAS_ENDED else frozenset[int]()
    return PortTime(name, marks, idle, ended)


def _bitmap(members: Iterable[int], count: int) -> bytes:
    bits = sum(1 << member for member in members)
    return bits.to_bytes((count + 7) // 8, "little")


def _members(fields: Fields, count: int) -> frozenset[int]:
    bits = int.from_bytes(fields.take((count + 7) // 8), "little")
    return frozenset(member for member in range(count) if bits >> member & 1)
