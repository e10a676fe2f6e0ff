"""A recommendation that the broker accepts: what it refuses is left as it is, and the search goes on without it."""

from __future__ import annotations

from dataclasses import replace

from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.advice.recommend import recommend
from stateflow.compaction.advice.recommendation import Recommendation
from stateflow.compaction.cluster.topic_admin import TopicAdmin
from stateflow.compaction.control.change import refusals
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.sensing.effect import require_effect
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.providers import TIERED, require_open


def recommend_allowed(
    admin: TopicAdmin,
    measurement: Measurement,
    objective: Objective,
    *,
    costs: Costs | None = None,
    provider: str = "apache",
) -> Recommendation:
    """Recommend, ask the broker to validate, and search again without the settings it refuses. Changes nothing.

    Raises ``ConfigError`` for a topic on which no compaction setting has an effect.
    """
    require_effect(measurement)
    require_open(provider)
    if measurement.cleanup.tiered:
        provider += TIERED
    fixed: dict[str, str] = {}
    while True:
        found = recommend(
            measurement, objective=objective, costs=costs, provider=provider, fixed=frozenset(fixed)
        )
        refused = refusals(admin, measurement.topic, dict(found.changes))
        if not refused or set(refused) <= set(fixed):
            notes = tuple(f"The broker refuses to change {name}: {why}" for name, why in fixed.items())
            return replace(found, unknown=found.unknown + notes)
        fixed.update(refused)
