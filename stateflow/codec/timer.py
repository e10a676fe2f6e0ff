"""A pending timer as a store keeps it: which time it follows, when it is due, when it was set."""

from __future__ import annotations

import struct
from typing import Any, Literal, NamedTuple, get_args

from stateflow.codec.base import Codec

TimerTime = Literal["event", "processing"]

_TIMES: tuple[TimerTime, ...] = get_args(TimerTime)
_FORMAT = 1
_TIMER = struct.Struct(">BBqq")


class Timer(NamedTuple):
    """A pending timer; times are ms since 1970 UTC."""

    time: TimerTime
    due_ms: int
    set_ms: int
    """Event time as far as it had come when it was set."""


class TimerCodec(Codec[Timer]):
    """Format uint8 = 1 ‖ time uint8 (0 event, 1 processing) ‖ due, ms, int64 ‖ set at, event time, ms, int64."""

    def _encode(self, value: Timer) -> bytes:
        return _TIMER.pack(_FORMAT, _TIMES.index(value.time), value.due_ms, value.set_ms)

    def _decode(self, data: bytes) -> Timer:
        form, time, due_ms, set_ms = _TIMER.unpack(data)
        if form != _FORMAT:
            raise ValueError(f"format {form}, this version knows {_FORMAT}")
        return Timer(_TIMES[time], due_ms, set_ms)

    def describe(self) -> dict[str, Any]:
        """``{"codec": "timer"}``."""
        return {"codec": "timer"}


class ShownTimerCodec(TimerCodec):
    """The same bytes for tools: a timer reads as a dict."""

    def _decode(self, data: bytes) -> Any:
        return super()._decode(data)._asdict()


EncodedTimer = TimerCodec()
