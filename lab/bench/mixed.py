"""What a small application does with each record at a low rate: counted, in a window, two timers, and a result."""

from __future__ import annotations

from datetime import timedelta

import stateflow as sf

_WINDOW = timedelta(seconds=10)
_SOON, _LATER = timedelta(seconds=1), timedelta(seconds=5)


class Watching(sf.Operator[bytes, bytes, bytes]):
    """Passes each value on, and waits a short and a long time for the next one of its key."""

    seen: sf.Value[int] = sf.state(default=0)
    waited: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: bytes, ctx: sf.Context[bytes]) -> None:
        """Two timers, set again by each record, and one result."""
        self.seen.set(self.seen.get() + 1)
        ctx.timer("soon", after=_SOON)
        ctx.timer("later", after=_LATER)
        ctx.emit(value)

    def on_timer(self, name: str, ctx: sf.Context[bytes]) -> None:  # noqa: ARG002 - an operator's signature
        """Nothing of the key came for so long."""
        self.waited.set(self.waited.get() + 1)


def mixed(stream: sf.Stream[bytes, bytes], output: sf.Topic[bytes, bytes]) -> None:
    """A running count, a count per ten seconds, and an operator with two timers and a result for each record."""
    stream.count(name="counts")
    stream.window(sf.Tumbling(_WINDOW)).count(name="windows")
    stream.process(Watching, name="watching").to(output)
