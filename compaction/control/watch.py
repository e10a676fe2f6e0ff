"""The closed loop: look, predict, and change a topic's settings only when its objective or its cost asks for it.

Rules it never breaks: settings stay within the legal ranges and the guards of a recommendation; a change that
protects the objective may follow the last one soon, one that only saves CPU must wait; when a sensor fails, or
what is changed cannot be written down to be undone, nothing is changed. Every look is a decision with a reason, kept
in a bounded log.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Literal

from stateflow.clock import Clock, SystemClock
from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.advice.recommend import recommend
from stateflow.compaction.advice.recommendation import Recommendation
from stateflow.compaction.cluster.topic_admin import TopicAdmin
from stateflow.compaction.control.change import change
from stateflow.compaction.control.journal import Journal
from stateflow.compaction.model.closed_form import predict
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.sensing.measure import changelog_bytes
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.legal import require_number
from stateflow.compaction.settings.topic_settings import Policy
from stateflow.errors import BrokerRefused, BrokerUnreachable, ConfigError, StateCorrupt, TopicMissing
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition

DECISIONS_KEPT = 1000
_LOOKS_KEPT = 2000
_SAVING_TOLD_MIN = 0.01
_TROUGH_SECONDS_MIN, _TROUGH_SECONDS_MAX = 2.0, 300.0
Action = Literal["hold", "change", "would change", "wait", "blind", "idle"]


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """How often to look, and how reluctantly to change."""

    protect_interval_seconds: float = 2.0
    """Shortest time between changes that protect the objective."""
    save_interval_seconds: float = 60.0
    """Shortest time between changes that only save CPU."""
    search_interval_seconds: float = 5.0
    """How often to look for a cheaper policy while the present one holds."""
    saving_min: float = 0.3
    """A cheaper policy is worth a change when it saves more than this share of the CPU."""
    rate_headroom_min: float = 1.1
    """The policy in force is kept as long as it would hold this many times the present update rate."""
    rate_memory: float = 0.5
    """Weight of the past when the update rate falls; a rise counts at once."""
    rate_window_seconds: float = 1.5
    """The update rate is taken over at least so long: a shorter look counts batches, not the stream."""
    trough_cycles: float = 2.5
    """The smallest size within so many predicted cycles stands for the live records."""
    dry_run: bool = False

    def __post_init__(self) -> None:
        for one in fields(self):
            if one.name != "dry_run":
                require_number(one.name, getattr(self, one.name))


@dataclass(frozen=True, slots=True)
class Decision:
    """One look at the topic, and what came of it."""

    at_ms: int
    action: Action
    reason: str
    size_bytes: int
    records: float
    updates_per_second: float
    live_records: float
    restore_seconds: float
    """Predicted for the log as it is now."""
    changes: dict[str, str | None]


@dataclass(slots=True)
class _Senses:
    """What the loop believes about the topic."""

    ends: deque[tuple[float, int]]
    """(seconds, end offsets of all partitions) of the last looks."""
    sizes: deque[tuple[float, int]]
    """(seconds, log bytes) of the last looks."""
    rate: float
    live_records: float
    bias: float = 1.0
    """Observed peak over predicted peak, when above 1."""
    peak_bytes: int = 0


class Watcher:
    """Keeps one topic within a restore objective. Call :meth:`look` regularly, or :meth:`run` in a thread.

    ``live_records`` tells the number of live records, from the application's own store; without it the smallest
    recent size of the log stands for them. Not thread-safe.
    """

    def __init__(
        self,
        cluster: Cluster,
        admin: TopicAdmin,
        measurement: Measurement,
        objective: Objective,
        journal: Journal,
        *,
        costs: Costs | None = None,
        options: WatchOptions | None = None,
        live_records: Callable[[], float] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._cluster, self._admin, self._journal = cluster, admin, journal
        self._objective, self._costs = objective, costs or Costs()
        self._options, self._clock = options or WatchOptions(), clock or SystemClock()
        self._count_live = live_records
        self._now = measurement
        self._session = uuid.uuid4().hex
        self._changed_seconds = self._searched_seconds = float("-inf")
        self._senses = _Senses(
            ends=deque(maxlen=_LOOKS_KEPT),
            sizes=deque(maxlen=_LOOKS_KEPT),
            rate=measurement.updates_per_second,
            live_records=float(measurement.live_records),
        )
        self.decisions: deque[Decision] = deque(maxlen=DECISIONS_KEPT)

    @property
    def topic(self) -> str:
        """The topic that is watched."""
        return self._now.topic

    @property
    def policy(self) -> Policy:
        """The policy that the loop believes to be in force."""
        return self._now.policy

    def learn(self, measurement: Measurement | None, objective: Objective, costs: Costs) -> None:
        """Go on with another share of the restore time, and with what reading the log anew has told (None: nothing)."""
        self._objective, self._costs = objective, costs
        if measurement is not None:
            self._now = measurement
            self._senses.live_records = float(measurement.live_records)

    def run(self, stop: Callable[[float], bool], interval_seconds: float = 1.0) -> None:
        """Look again and again until ``stop(interval_seconds)``, which waits so long, returns True.

        ``threading.Event.wait`` is such a function.
        """
        while not stop(interval_seconds):
            self.look()

    def look(self) -> Decision:
        """Sense, decide, and change the topic if need be.

        Never raises for a sensor, for a change that is refused, or for a journal that cannot be kept: such a look is
        ``blind``, changes nothing, and the next one may find all in order again.
        """
        try:
            size_bytes = self._sense()
            decision = self._decide(size_bytes)
        except (BrokerUnreachable, BrokerRefused, TopicMissing, ConfigError) as error:
            decision = self._decision("blind", f"{error.message} Settings stay as they are.", 0, {})
        self.decisions.append(decision)
        return decision

    # --- sensing ------------------------------------------------------------------------------------

    def _sense(self) -> int:
        senses, topic = self._senses, self._now.topic
        ranges = self._cluster.ranges(TopicPartition(topic, number) for number in range(self._now.partitions))
        seconds, size_bytes = self._clock.monotonic_seconds(), changelog_bytes(self._admin, topic)
        senses.ends.append((seconds, sum(found.offset_next for found in ranges.values())))
        senses.sizes.append((seconds, size_bytes))
        senses.rate = self._rate()
        senses.peak_bytes = max(senses.peak_bytes, size_bytes)
        senses.live_records = self._live_records()
        self._now = replace(
            self._now,
            policy=Policy.from_config(self._admin.topic_config(topic)),
            overrides=self._admin.topic_overrides(topic),
            size_bytes=size_bytes,
            updates_per_second=senses.rate,
            live_keys=max(1, round(senses.live_records) - self._now.tombstones),
        )
        return size_bytes

    def _rate(self) -> float:
        """Updates per second over the last looks: a rise counts at once, a fall by and by.

        Where windows close, looks are taken over one of them: what it deletes at once is no rise.
        """
        senses, options = self._senses, self._options
        now, offsets = senses.ends[-1]
        window = options.rate_window_seconds
        if self._now.bursts is not None:
            window = max(window, self._now.bursts.interval_seconds)
        earlier = [look for look in senses.ends if look[0] <= now - window]
        if not earlier:
            return senses.rate
        seconds, before = earlier[-1]
        rate = max(0.0, (offsets - before) / (now - seconds))
        return max(rate, options.rate_memory * senses.rate + (1 - options.rate_memory) * rate)

    def _live_records(self) -> float:
        """Live records: told by the store, else what the log shrank to within the last cycles."""
        if self._count_live is not None:
            return self._count_live()
        senses = self._senses
        cycle = predict(self._now.workload(), self._now.policy, self._now.cleaner, self._costs).cycle_seconds
        window = min(max(self._options.trough_cycles * cycle, _TROUGH_SECONDS_MIN), _TROUGH_SECONDS_MAX)
        now = senses.sizes[-1][0]
        if senses.sizes[0][0] > now - window:
            return senses.live_records  # not watched for long enough
        smallest = min(size for seconds, size in senses.sizes if seconds >= now - window)
        live = smallest / self._now.workload().live_record_bytes
        # Where the window is shorter than a cycle it may have no trough: then the smallest log is a bound alone.
        return live if cycle <= window else min(live, senses.live_records)

    # --- deciding -----------------------------------------------------------------------------------

    def _decide(self, size_bytes: int) -> Decision:
        if self._senses.rate < 0.01:
            return self._decision("idle", "Nothing is written, so nothing can be compacted.", size_bytes, {})
        holds = self._holds()
        self._learn()
        now = self._clock.monotonic_seconds()
        if holds and now - self._searched_seconds < self._options.search_interval_seconds:
            return self._decision("hold", "The policy holds.", size_bytes, {})
        self._searched_seconds = now
        found = recommend(self._now, objective=self._tightened(), costs=self._costs, with_alternatives=False)
        if not found.reachable and not self._closer(found):
            why = "No policy meets the objective now; the closest is in force."
            return self._decision("hold", why, size_bytes, {})
        current = found.current.cleaner_cores + found.current.roll_cores
        best = found.best.cleaner_cores + found.best.roll_cores
        saving = 1 - best / current if current > 0 else 0.0
        if holds and saving <= self._options.saving_min:
            beside = f"; another would save {saving:.0%}" if saving >= _SAVING_TOLD_MIN else ""
            return self._decision("hold", f"The policy holds{beside}.", size_bytes, {})
        why = "the bound would not hold" if not holds else f"{saving:.0%} less CPU does too"
        return self._change(found, why, holds, size_bytes)

    def _holds(self) -> bool:
        """True when the policy in force keeps the budget, a little headroom included, by prediction."""
        workload = self._now.workload().stressed(self._options.rate_headroom_min, 1.0)
        now, shared = self._now, self._objective.parallelism(self._now.partitions)
        outcome = predict(workload, now.policy, now.cleaner, self._costs, worst=True, parallelism=shared)
        return outcome.records_max * self._senses.bias <= self._budget() and not outcome.saturated

    def _budget(self) -> float:
        within = self._now.restore.records_within(self._objective.restore_within_seconds)
        return within * self._objective.parallelism(self._now.partitions)

    def _learn(self) -> None:
        """Take a peak above the predicted one as a sign that the model is too hopeful here."""
        expected = predict(self._now.workload(), self._now.policy, self._now.cleaner, self._costs, worst=True)
        if (
            expected.size_max_bytes > 0
            and self._clock.monotonic_seconds() - self._changed_seconds > 2 * expected.cycle_seconds
        ):
            observed = self._senses.peak_bytes / expected.size_max_bytes
            self._senses.bias = max(1.0, min(2.0, 0.7 * self._senses.bias + 0.3 * observed))
            self._senses.peak_bytes = 0

    def _tightened(self) -> Objective:
        return replace(self._objective, margin=1 - (1 - self._objective.margin) / self._senses.bias)

    def _closer(self, found: Recommendation) -> bool:
        return found.best.restore_seconds_stressed < 0.9 * found.current.restore_seconds_stressed

    def _change(self, found: Recommendation, why: str, holds: bool, size_bytes: int) -> Decision:
        options = self._options
        wait = options.save_interval_seconds if holds else options.protect_interval_seconds
        waited = self._clock.monotonic_seconds() - self._changed_seconds
        changes: dict[str, str | None] = dict(found.changes)
        if waited < wait:
            return self._decision(
                "wait", f"A change is due ({why}), {wait - waited:.0f} s from now.", size_bytes, {}
            )
        if options.dry_run:
            return self._decision("would change", why, size_bytes, changes)
        topic, journal = self._now.topic, self._journal
        try:
            change(self._admin, topic, changes, journal, session=self._session, clock=self._clock)
        except (StateCorrupt, OSError) as error:
            # Of the journal, which is written before the topic is changed.
            said = f"A change is due ({why}), but could not be undone: {str(error).rstrip('.')}."
            return self._decision("blind", f"{said} Settings stay as they are.", size_bytes, {})
        self._changed_seconds, self._senses.peak_bytes = self._clock.monotonic_seconds(), 0
        self._now = replace(self._now, policy=found.best.policy)
        return self._decision("change", why, size_bytes, changes)

    def _decision(
        self, action: Action, reason: str, size_bytes: int, changes: dict[str, str | None]
    ) -> Decision:
        senses = self._senses
        load = self._now.workload()
        dirty_bytes = max(0.0, size_bytes - senses.live_records * load.live_record_bytes)
        records = (
            min(senses.live_records, size_bytes / load.live_record_bytes) + dirty_bytes / load.record_bytes
        )
        return Decision(
            at_ms=self._clock.now_ms(),
            action=action,
            reason=reason,
            size_bytes=size_bytes,
            records=records,
            updates_per_second=senses.rate,
            live_records=senses.live_records,
            restore_seconds=self._now.restore.seconds(
                records / self._objective.parallelism(self._now.partitions)
            ),
            changes=changes,
        )
