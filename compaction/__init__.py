"""Measure how Kafka compacts a topic, and tune it to a restore time.

``measure`` looks, ``recommend`` decides, ``apply`` and ``rollback`` change. Works on any compacted topic.
"""

from __future__ import annotations

from stateflow.compaction.admin import ClusterAdmin
from stateflow.compaction.apply import Applied, apply, rollback
from stateflow.compaction.journal import Journal
from stateflow.compaction.measure import MeasureOptions, changelog_bytes, measure
from stateflow.compaction.measurement import Measurement
from stateflow.compaction.negotiate import recommend_allowed
from stateflow.compaction.objective import Objective
from stateflow.compaction.policy import CleanerSettings, Policy
from stateflow.compaction.recommend import recommend
from stateflow.compaction.recommendation import Outcome, Recommendation
from stateflow.compaction.settle import Settled, settle, touch
from stateflow.compaction.workload import RestoreRate, Workload

__all__ = [
    "Applied",
    "CleanerSettings",
    "ClusterAdmin",
    "Journal",
    "MeasureOptions",
    "Measurement",
    "Objective",
    "Outcome",
    "Policy",
    "Recommendation",
    "RestoreRate",
    "Settled",
    "Workload",
    "apply",
    "changelog_bytes",
    "measure",
    "recommend",
    "recommend_allowed",
    "rollback",
    "settle",
    "touch",
]
