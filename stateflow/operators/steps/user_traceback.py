"""Where in the application's own code an exception was raised, without the frames of this package around it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from traceback import StackSummary, TracebackException, walk_tb
from types import FrameType

_PACKAGE = __name__.partition(".")[0]
_FRAMES_MAX = 50
"""Of each exception: a recursion has thousands."""


@dataclass(frozen=True, slots=True)
class UserTraceback:
    """What to show of an exception."""

    place: str
    """``file:line`` of the innermost frame that is in no library."""
    function: str
    text: str
    """The frames that are not this package's, then the error, as Python shows them."""

    def fields(self) -> dict[str, object]:
        """The same for an error's fields, which travel between processes."""
        return {"raised_at": self.place, "traceback": self.text}


def user_traceback(error: BaseException) -> UserTraceback | None:
    """What to show of ``error``; None where no code but this package's had a part in it.

    Exceptions that it was raised from, or while they were handled, are shown where the application handled them.
    """
    stack = _stack(error)
    if not stack:
        return None
    told = TracebackException(type(error), error, None)
    _trim(told, error)
    own = [frame for frame in stack if not _is_library(frame.filename)] or stack
    return UserTraceback(
        place=f"{own[-1].filename}:{own[-1].lineno}",
        function=own[-1].name,
        text="".join(line for line in told.format() if not line.startswith("Traceback (")).rstrip("\n"),
    )


def _trim(told: TracebackException, error: BaseException) -> None:
    told.stack = _stack(error)
    for name in ("__cause__", "__context__"):
        inner, before = getattr(told, name), getattr(error, name)
        if inner is None or before is None:
            continue
        if _was_caught_by_us(before):
            setattr(told, name, None)
        else:
            _trim(inner, before)


def _stack(error: BaseException) -> StackSummary:
    return StackSummary.extract(iter(_frames(error)[-_FRAMES_MAX:]))


def _frames(error: BaseException) -> list[tuple[FrameType, int]]:
    return [(frame, line) for frame, line in _walked(error) if not _is_ours(frame)]


def _walked(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    return iter(walk_tb(error.__traceback__))


def _was_caught_by_us(error: BaseException) -> bool:
    """A traceback begins with the frame that caught it: ours tries a batch again record by record, and retries."""
    return any(_is_ours(frame) for frame, _ in islice(_walked(error), 1))


def _is_ours(frame: FrameType) -> bool:
    """Whether a frame is this package's, or of the import system, which stands between two modules."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in (_PACKAGE, "importlib")


def _is_library(filename: str) -> bool:
    return filename.startswith("<") or any(Path(filename).is_relative_to(folder) for folder in _libraries())


@cache
def _libraries() -> tuple[str, ...]:
    import sysconfig  # reads the build's settings of this Python, for which no start should wait

    return tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
