"""Names on Kafka, in the forms that Kafka tools recognise."""

from __future__ import annotations


def _generation_suffix(generation: int) -> str:
    return f"-g{generation}" if generation else ""


def changelog_topic(app: str, store: str, generation: int = 0) -> str:
    """``<app>-<store>-changelog``, with ``-g<generation>`` after the first."""
    return f"{app}-{store}-changelog{_generation_suffix(generation)}"


def repartition_topic(app: str, name: str, generation: int = 0) -> str:
    """``<app>-<name>-repartition``, with ``-g<generation>`` after the first."""
    return f"{app}-{name}-repartition{_generation_suffix(generation)}"


def control_topic(app: str) -> str:
    """``<app>-control``: one partition, compacted, the catalog."""
    return f"{app}-control"


def task_id(stage: str, partition: int) -> str:
    """``<stage>-<partition>``: one task."""
    return f"{stage}-{partition}"


def transactional_id(app: str, generation: int, task: str) -> str:
    """``<app>-<generation>-<task>``: starting a task under it fences its predecessor."""
    return f"{app}-{generation}-{task}"


def members_topic(app: str) -> str:
    """``<app>-members``: one partition, compacted and short-lived: who runs what, and how warm the copies are."""
    return f"{app}-members"
