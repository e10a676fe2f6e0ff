"""How many tasks a session can run at the same time, asked before tasks are started that never end."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from stateflow.errors import ConfigError, JobFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)

EXECUTORS_SECONDS_MAX = 30.0
"""How long executors of a cluster may take to register."""
_STABLE_SECONDS = 3.0
"""A number of slots that has not changed for so long is taken as all there are."""
_PAUSE_SECONDS = 0.25


def slots_of(session: SparkSession) -> int:
    """Tasks that the executors registered by now can run at the same time."""
    context = session.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    return int(context.maxNumConcurrentTasks(profile))


def workers_for(session: SparkSession, asked: int | None, tasks: int) -> int:
    """How many workers to start: those asked for, else one for each slot, at most one for each of ``tasks``.

    A worker holds its slot until it is stopped, so one without a slot would wait for ever. Raises ``ConfigError`` when
    there are fewer slots than workers, ``JobFailed`` when there are none.
    """
    if _is_dynamic(session):
        if asked is None:
            raise ConfigError(
                "With dynamic allocation the number of executors follows the number of tasks.",
                action="say with --workers how many workers there shall be.",
            )
        return asked
    slots = _stable_slots(session, asked or tasks)
    if slots == 0:
        raise JobFailed(
            f"no executor registered within {EXECUTORS_SECONDS_MAX:.0f} s.",
            action="look at the master's page: are workers up, and do they have the cores and the memory asked for?",
        )
    if asked is not None and asked > slots:
        raise ConfigError(
            f"{asked} workers need {asked} slots for as long as they run, and Spark has {slots}.",
            action=f"start {slots} with --workers {slots}, each then has more of the partitions; or add executors or"
            " cores (spark.cores.max, spark.executor.cores, local[N]).",
            workers=asked,
            slots=slots,
        )
    return asked if asked is not None else min(slots, tasks)


def _stable_slots(session: SparkSession, wanted: int) -> int:
    """The slots, once there are as many as wanted or no more are registering."""
    began = changed = time.monotonic()
    slots = slots_of(session)
    is_local = str(session.sparkContext.master).startswith("local")
    while slots < wanted and not is_local:
        time.sleep(_PAUSE_SECONDS)
        before, slots = slots, slots_of(session)
        now = time.monotonic()
        changed = changed if slots == before else now
        if (slots and now - changed > _STABLE_SECONDS) or now - began > EXECUTORS_SECONDS_MAX:
            break
    return slots


def _is_dynamic(session: SparkSession) -> bool:
    conf = session.sparkContext.getConf()
    return conf.get("spark.dynamicAllocation.enabled", "false") == "true" and not str(
        session.sparkContext.master
    ).startswith("local")
