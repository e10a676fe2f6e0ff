"""A pending timer as a store keeps it: which time it follows, when it is due, when it was set."""

from __future__ import annotations

import struct
from typing import Any, Literal, NamedTuple, get_args

from stateflow.codec.base import Codec
from stateflow.codec.structured import MsgPack

TimerTime = Literal["event", "processing"]

_TIMES: tuple[TimerTime, ...] = get_args(TimerTime)
_FORMAT, _WITH_PAYLOAD = 1, 2
_TIMER = struct.Struct(">BBqq")


class Timer(NamedTuple):
    """A pending timer; times are ms since 1970 UTC."""

    time: TimerTime
    due_ms: int
    set_ms: int
    """Event time as far as it had come when it was set."""
    payload: bytes = b""
    """What its function is given with it, MessagePack; empty for nothing."""


class TimerCodec(Codec[Timer]):
    """Format uint8 ‖ time uint8 (0 event, 1 processing) ‖ due, ms, int64 ‖ set at, event time, ms, int64 ‖ payload.

    Format 1 is that of timers without a payload, 2 that of the others: what needs no newer version says so.
    """

    def _encode(self, value: Timer) -> bytes:
        form = _WITH_PAYLOAD if value.payload else _FORMAT
        return _TIMER.pack(form, _TIMES.index(value.time), value.due_ms, value.set_ms) + value.payload

    def _decode(self, data: bytes) -> Timer:
        form, time, due_ms, set_ms = _TIMER.unpack_from(data)
        payload = data[_TIMER.size :]
        if form not in (_FORMAT, _WITH_PAYLOAD):
            raise ValueError(f"format {form}, this version knows {_FORMAT} and {_WITH_PAYLOAD}")
        if bool(payload) != (form == _WITH_PAYLOAD):
            raise ValueError(f"format {form} with {len(payload)} bytes of payload")
        return Timer(_TIMES[time], due_ms, set_ms, payload)

    def describe(self) -> dict[str, Any]:
        """``{"codec": "timer"}``."""
        return {"codec": "timer"}


class ShownTimerCodec(TimerCodec):
    """The same bytes for tools: a timer reads as a dict, with its payload where it has one."""

    def _decode(self, data: bytes) -> Any:
        timer = super()._decode(data)
        shown = timer._asdict()
        return shown | {"payload": MsgPack.decode(timer.payload)} if shown.pop("payload") else shown


EncodedTimer = TimerCodec()
