"""Notices topics that are deleted and created again while they are read, of which the client tells nobody.

It finds the new topic under the old name and reads on at the old offset: what the new one holds before it would
be passed over in silence. So a worker compares topic ids with the catalog's now and then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial

from stateflow.catalog.model import Catalog
from stateflow.catalog.recreated import refuse_recreated_own, refuse_recreated_sources
from stateflow.clock import Clock
from stateflow.errors import StateflowError
from stateflow.log.base import Cluster, TopicInfo
from stateflow.runtime.background import BackgroundRequest

_LOG = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""Time between two looks: for so long a worker may read a topic that is another by now."""
LOOK_FAILED_SECONDS = 30.0
"""The same after a look that failed: each is a warning, and may take as long as a request may take."""


class TopicWatch:
    """The topics of an application, as its catalog knew them when the worker started. Used by one thread alone.

    ``requests`` takes the place of the thread that asks the brokers. ``check_counts`` is given how many partitions the
    topics have, by those who do not hear of that from a consumer group.
    """

    def __init__(
        self,
        cluster: Cluster,
        catalog: Catalog,
        clock: Clock,
        requests: Executor | None = None,
        *,
        check_counts: Callable[[Mapping[str, int]], None] | None = None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._check_counts = check_counts
        self._stages = list(catalog.stages.values())
        self._own_ids = catalog.active.topic_ids
        sources = {topic for stage in self._stages for topic in stage.source_ids}
        self._topics = sorted(sources | self._own_ids.keys())
        self._next_seconds = clock.monotonic_seconds() + LOOK_SECONDS
        self._request = BackgroundRequest[dict[str, TopicInfo]]("topic-watch", requests)

    def turn(self) -> None:
        """Look when it is time to, and take note of what was seen; to be called with every turn of the worker.

        Raises ``TopicRecreated``, and what ``check_counts`` raises. A topic that is not there is none of this one's
        concern: its readers and writers meet it.
        """
        if self._request.is_over:
            self._take_note()
        elif not self._request.is_under_way and self._clock.monotonic_seconds() >= self._next_seconds:
            self._request.begin(partial(self._cluster.describe, self._topics))

    def _take_note(self) -> None:
        pause_seconds = LOOK_SECONDS
        try:
            found = self._request.take()
        except StateflowError as error:
            _LOG.warning("Cannot see whether topics were created again: %s", error)
            found, pause_seconds = {}, LOOK_FAILED_SECONDS
        self._next_seconds = self._clock.monotonic_seconds() + pause_seconds
        self._judge(found)

    def look(self) -> None:
        """Look now, and wait for the answer. Raises what ``turn`` raises, and what asking the brokers does."""
        self._judge(self._cluster.describe(self._topics))

    def _judge(self, found: Mapping[str, TopicInfo]) -> None:
        found_ids = {name: info.topic_id for name, info in found.items()}
        refuse_recreated_sources(self._stages, found_ids)
        refuse_recreated_own(self._own_ids, found_ids)
        if self._check_counts is not None:
            self._check_counts({name: info.partitions for name, info in found.items()})

    def close(self) -> None:
        """Ask nothing any more; a question that brokers do not answer is not waited for."""
        self._request.close(waits=False)
