"""Brokers that are away for a while: every call to them fails, at once or after it was carried out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stateflow.errors import BrokerUnreachable
from tests.sim.crashing import Watched

CLUSTER_CALLS = ("describe", "ranges", "ends", "committed", "commit", "group_members", "trim")
READER_CALLS = ("assign", "read")
WRITER_CALLS = ("append", "send", "send_many", "send_offsets", "flush", "commit", "abort")
GROUP_CALLS = ("poll", "commit")


class Outage:
    """Whether the brokers are away, and what was asked of them meanwhile."""

    def __init__(self) -> None:
        self.is_on = False
        self.loses_answers = False
        """Requests still arrive, only the answers are lost."""
        self.asked: list[str] = []

    def run(self, what: str, call: Callable[[], Any]) -> Any:
        """Carry out one call, or fail as a client library does."""
        if not self.is_on:
            return call()
        self.asked.append(what)
        if self.loses_answers:
            call()
        raise BrokerUnreachable(f"no answer to {what}.", action="look at the broker.", bootstrap="b:1")


class AwayCluster(Watched):
    """A cluster that can be away."""

    def __init__(self, real: Any, outage: Outage) -> None:
        super().__init__(real, outage, CLUSTER_CALLS)  # type: ignore[arg-type]

    def reader(self, *, follows: bool = False) -> Any:
        made = self._plan.run("reader", lambda: self._real.reader(follows=follows))
        return Watched(made, self._plan, READER_CALLS)

    def writer(self, transactional_id: str | None = None) -> Any:
        made = self._plan.run("writer", lambda: self._real.writer(transactional_id))
        return Watched(made, self._plan, WRITER_CALLS)

    def group_consumer(self, *args: Any, **kwargs: Any) -> Any:
        return Watched(self._real.group_consumer(*args, **kwargs), self._plan, GROUP_CALLS)
