"""Measure how Kafka compacts a topic, and tune it to a restore time.

``measure`` looks, ``recommend`` decides, ``apply`` and ``rollback`` change. Works on any compacted topic.

Folders, each importing only those above it: ``settings`` (what may be set), ``cluster`` (asking the brokers),
``model`` (predicting), ``sensing`` (measuring), ``advice`` (recommending), ``control`` (changing and watching),
``calibration`` and ``pages`` (short runs of made-up load, HTML). The study of all this is ``lab/compaction``.
"""

from __future__ import annotations

from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.advice.recommend import recommend
from stateflow.compaction.advice.recommendation import Outcome, Recommendation
from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.control.change import Applied, apply, rollback
from stateflow.compaction.control.journal import Journal
from stateflow.compaction.control.negotiate import recommend_allowed
from stateflow.compaction.control.size_wait import SizeWait, touch, wait_for_size
from stateflow.compaction.model.workload import RestoreRate, Workload
from stateflow.compaction.sensing.measure import MeasureOptions, changelog_bytes, measure
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy

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
    "SizeWait",
    "Workload",
    "apply",
    "changelog_bytes",
    "measure",
    "recommend",
    "recommend_allowed",
    "rollback",
    "touch",
    "wait_for_size",
]
