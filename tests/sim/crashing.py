"""Stopping dead at a chosen call: every write to the log and to the stores is a possible place to die."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Crash(BaseException):
    """The process is gone. Not an ``Exception``: no handler may run after it, as after SIGKILL."""


class CrashPlan:
    """Dies before or after the n-th call, counted over everything it watches."""

    def __init__(self, call: int | None = None, *, after: bool = False) -> None:
        self._call = call
        self._after = after
        self.calls = 0
        self.dead = False
        self.died_at = ""

    def run(self, what: str, call: Callable[[], Any]) -> Any:
        """Carry out one watched call, or die; the dead carry out nothing."""
        if self.dead:
            raise Crash(self.died_at)
        self.calls += 1
        if self.calls == self._call and not self._after:
            self._die(f"before {what}")
        result = call()
        if self.calls == self._call:
            self._die(f"after {what}")
        return result

    def _die(self, where: str) -> None:
        self.dead, self.died_at = True, where
        raise Crash(where)


class Watched:
    """A real object whose named methods go through a crash plan; everything else is passed on."""

    def __init__(self, real: Any, plan: CrashPlan, methods: tuple[str, ...]) -> None:
        self._real = real
        self._plan = plan
        self._methods = methods

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if name not in self._methods:
            return found
        plan = self._plan

        def watched(*args: Any, **kwargs: Any) -> Any:
            return plan.run(name, lambda: found(*args, **kwargs))

        setattr(self, name, watched)  # found at once the next time
        return watched


WRITER_CALLS = ("begin", "send_many", "send", "append", "send_offsets", "commit", "abort", "close")
STORE_CALLS = ("apply", "flush", "clear", "close")
GROUP_CALLS = ("commit", "close")


class CrashingCluster(Watched):
    """A cluster whose writers and group members may be the last thing a process touches."""

    def __init__(self, real: Any, plan: CrashPlan) -> None:
        super().__init__(real, plan, ())

    def writer(self, transactional_id: str | None = None) -> Any:
        return Watched(self._real.writer(transactional_id), self._plan, WRITER_CALLS)

    def group_consumer(self, *args: Any, **kwargs: Any) -> Any:
        return Watched(self._real.group_consumer(*args, **kwargs), self._plan, GROUP_CALLS)
