"""Several topics kept within one restore time together: measured, shared out, watched, and measured anew as they grow.

The loop of one topic is :mod:`stateflow.compaction.control.watch`. Here they divide the time among them, and what
only reading a log can tell (record sizes, tombstones, transactions) is looked at again now and then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from stateflow.clock import Clock, SystemClock
from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.advice.share import shared_objectives
from stateflow.compaction.cluster.topic_admin import TopicAdmin
from stateflow.compaction.control.journal import Journal
from stateflow.compaction.control.watch import Decision, Watcher, WatchOptions
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.sensing.effect import require_effect
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.errors import StateflowError
from stateflow.log.base import Cluster

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SeveralOptions:
    """When to read a log again, and how to watch it."""

    together: bool = True
    """False gives every topic the whole restore time, as when they are restored by different workers."""
    measure_interval_seconds: float = 600.0
    measure_interval_min_seconds: float = 20.0
    growth_bytes: int = 1 << 20
    """A log that outgrew twice its measured size by so much is read again before the interval is over."""
    watch: WatchOptions = field(default_factory=WatchOptions)


class SeveralWatchers:
    """Keeps topics within a restore objective. Call :meth:`look` regularly. Not thread-safe.

    ``measure`` looks at one topic and may raise what :func:`stateflow.compaction.measure` raises; ``costs`` tells
    what cleaning costs where it was measured. Raises ``ConfigError`` when no setting has an effect on one of them.
    """

    def __init__(
        self,
        cluster: Cluster,
        admin: TopicAdmin,
        topics: Sequence[str],
        objective: Objective,
        journal: Journal,
        *,
        measure: Callable[[str], Measurement],
        costs: Callable[[Measurement], Costs] = lambda _measurement: Costs(),
        options: SeveralOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._options, self._clock = options or SeveralOptions(), clock or SystemClock()
        self._measure, self._costs, self._objective = measure, costs, objective
        self._measured = {topic: measure(topic) for topic in topics}
        for found in self._measured.values():
            require_effect(found)
        self._measured_seconds = dict.fromkeys(topics, self._clock.monotonic_seconds())
        objectives = self._objectives()
        self._watchers = {
            topic: Watcher(
                cluster,
                admin,
                found,
                objectives[topic],
                journal,
                costs=costs(found),
                options=self._options.watch,
                clock=self._clock,
            )
            for topic, found in self._measured.items()
        }

    @property
    def watchers(self) -> Mapping[str, Watcher]:
        """The loop of each topic."""
        return self._watchers

    def look(self) -> list[tuple[str, Decision]]:
        """One look at every topic; at most one of them is read again. Never raises for a sensor."""
        decisions = [(topic, watcher.look()) for topic, watcher in self._watchers.items()]
        due = next((topic for topic, decision in decisions if self._is_due(topic, decision)), None)
        if due is not None:
            self._measure_again(due)
        return decisions

    def _is_due(self, topic: str, decision: Decision) -> bool:
        if decision.action in ("blind", "idle"):
            return False
        seconds = self._clock.monotonic_seconds() - self._measured_seconds[topic]
        grown = decision.size_bytes > 2 * self._measured[topic].size_bytes + self._options.growth_bytes
        interval = self._options.measure_interval_seconds
        return seconds >= (self._options.measure_interval_min_seconds if grown else interval)

    def _measure_again(self, topic: str) -> None:
        self._measured_seconds[topic] = self._clock.monotonic_seconds()
        try:
            self._measured[topic] = self._measure(topic)
        except StateflowError as error:
            _LOG.warning("%s is not measured anew, its loop goes on with what it knows: %s", topic, error)
            return
        objectives = self._objectives()
        for name, watcher in self._watchers.items():
            found = self._measured[name] if name == topic else None
            watcher.learn(found, objectives[name], self._costs(self._measured[name]))

    def _objectives(self) -> dict[str, Objective]:
        measured = list(self._measured.values())
        if not self._options.together:
            return dict.fromkeys(self._measured, self._objective)
        shared = shared_objectives(measured, self._objective, [self._costs(found) for found in measured])
        return dict(zip(self._measured, shared, strict=True))
