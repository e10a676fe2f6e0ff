"""Names on Kafka, in the forms that Kafka tools recognise."""

from __future__ import annotations

import re

from stateflow.record import is_topic_name

SAVEPOINT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
"""What a savepoint may be called."""


def _generation_suffix(generation: int) -> str:
    return f"-g{generation}" if generation else ""


def changelog_topic(app: str, store: str, generation: int = 0) -> str:
    """``<app>-<store>-changelog``, with ``-g<generation>`` after the first."""
    return f"{app}-{store}-changelog{_generation_suffix(generation)}"


def repartition_topic(app: str, name: str, generation: int = 0) -> str:
    """``<app>-<name>-repartition``, with ``-g<generation>`` after the first."""
    return f"{app}-{name}-repartition{_generation_suffix(generation)}"


CONTROL_SUFFIX = "-control"


def control_topic(app: str) -> str:
    """``<app>-control``: one partition, compacted, the catalog."""
    return f"{app}{CONTROL_SUFFIX}"


def task_id(stage: str, partition: int) -> str:
    """``<stage>-<partition>``: one task."""
    return f"{stage}-{partition}"


def stage_of(task: str) -> str:
    """The stage of a task, by its id."""
    return stage_and_partition(task)[0]


def stage_and_partition(task: str) -> tuple[str, int]:
    """What ``task_id`` was made of."""
    stage, _, partition = task.rpartition("-")
    return stage, int(partition)


def transactional_id(app: str, generation: int, task: str) -> str:
    """``<app>-<generation>-<task>``: starting a task under it fences its predecessor."""
    return f"{app}-{generation}-{task}"


def presence_group(app: str) -> str:
    """``<app>-spark``: the group that the driver of a Spark query joins to be seen."""
    return f"{app}-spark"


def members_topic(app: str) -> str:
    """``<app>-members``: one partition, compacted and short-lived: who runs what, and how warm the copies are."""
    return f"{app}-members"


def claims_topic(app: str) -> str:
    """``<app>-claims``: one partition, compacted: which writers, shared by tasks, may have written for which task."""
    return f"{app}-claims"


def writer_id(app: str, life: str) -> str:
    """``<app>-writer-<life>``: the transactional id of one life of a writer that tasks share; never used again."""
    return f"{app}-writer-{life}"


def without_generation(topic: str) -> str:
    """A topic's name without the ``-g<generation>`` at its end."""
    return re.sub(r"-g[1-9][0-9]*\Z", "", topic)


def is_own_topic(app: str, topic: str) -> bool:
    """True for a name that a changelog or repartition topic of the application may have."""
    inner = re.fullmatch(rf"{re.escape(app)}-(.+)-(changelog|repartition)(-g[1-9][0-9]*)?", topic)
    return inner is not None and is_topic_name(topic)
