"""A worker that a repartition has overtaken: the tasks it knows are no longer the application's.

It hung, its session ended, the partition count was changed, and it came back. It may join its group again, but it must
not open a task: input that it read would go to topics which nobody reads any more.
"""

from __future__ import annotations

from stateflow.catalog.control import ControlTopic, refuse_unfinished
from stateflow.catalog.model import Catalog
from stateflow.errors import GenerationUnfinished
from stateflow.log.base import Cluster
from stateflow.runtime.task.wiring import TaskWiring


def refuse_stale_generation(cluster: Cluster, wiring: TaskWiring) -> Catalog:
    """The catalog as it is now, in which the task's generation is the active one, and none is being prepared.

    Raises ``GenerationUnfinished`` otherwise. Call it as a member of the group, or of the group that stands for it: a
    repartition looks for members after it has announced its generation, so one of the two sees the other.
    """
    catalog = refuse_unfinished(ControlTopic(cluster, wiring.app).load())
    if catalog.active.generation != wiring.generation:
        raise GenerationUnfinished(
            f"task {wiring.id} is of generation {wiring.generation}, and generation {catalog.active.generation} with"
            f" {catalog.active.partitions} partitions has become active since this worker started.",
            action="start the worker again: it then runs the tasks of the active generation.",
            app=wiring.app,
            generation=catalog.active.generation,
            partitions=catalog.active.partitions,
        )
    return catalog
