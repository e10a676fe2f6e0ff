"""One worker process: connect, prepare, run until told to stop."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from stateflow.checkpoint.image_making import SAVEPOINT_FOLDER
from stateflow.checkpoint.image_selection import install_best
from stateflow.checkpoint.jobs import RestoreJob
from stateflow.checkpoint.locations import AllowedLocations, open_objects
from stateflow.clock import Clock, SystemClock
from stateflow.errors import Interrupted
from stateflow.log.base import Cluster
from stateflow.runtime.opening.opening import StoreOpener
from stateflow.runtime.process.lives import WorkersInTurn
from stateflow.runtime.process.outage_exit import OutageExit
from stateflow.runtime.process.signals import check_not_interrupted, stopped_by_signals
from stateflow.runtime.process.supervisor import stop_with_parent
from stateflow.runtime.progress.draining import Drain, QuietHere, QuietPipe, watching_drain
from stateflow.runtime.progress.lag import source_ends
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.snapshots.imaging import Imaging
from stateflow.runtime.snapshots.savepoint_participant import CheckpointFolder, SavepointParticipant
from stateflow.runtime.standby.copies import StandbyCopies
from stateflow.runtime.standby.placing import placing_on_disk
from stateflow.runtime.standby.threads import beside
from stateflow.runtime.standby.worker import PlacedWorker
from stateflow.runtime.task.wiring import TaskWiring, Wiring
from stateflow.runtime.worker.descriptors import allow_descriptors
from stateflow.runtime.worker.figures import FigureRequests, WorkerNews
from stateflow.runtime.worker.observing import WorkerObserver
from stateflow.runtime.worker.status_reports import StatusReports
from stateflow.runtime.worker.worker import Worker
from stateflow.store.base import TaskStores
from stateflow.store.directory import task_directory
from stateflow.store.memory import MemoryTaskStores
from stateflow.store.rocks import RocksResources, RocksTaskStores

_LOG = logging.getLogger(__name__)


def rocks_opener(
    cluster: Cluster, settings: WorkerSettings, resources: RocksResources, clock: Clock | None = None
) -> Callable[[TaskWiring, Callable[[], bool]], RocksTaskStores]:
    """Opens each task's RocksDB below the state directory; all share one cache and one write buffer.

    Where images are kept, a task whose whole changelog would have to be read is given the best image first.
    """
    watch = clock or SystemClock()

    def open_stores(wiring: TaskWiring, cancelled: Callable[[], bool]) -> RocksTaskStores:
        place = task_directory(
            settings.state_dir, wiring.app, cluster.cluster_id, wiring.generation, wiring.id
        )
        images = wiring.log_policy.images(settings.images)
        if images is not None and wiring.changelogs:
            job = RestoreJob(
                wiring.id,
                place,
                dict(wiring.changelogs),
                dict(wiring.topic_ids),
                log_policy=wiring.log_policy,
            )
            install_best(cluster, job, images, watch, cancelled)
        return RocksTaskStores.open(place, [store.name for store in wiring.stage.stores], resources, watch)

    return open_stores


def stateless_apart(open_stores: StoreOpener) -> StoreOpener:
    """Opens no database for a task without stores: there is nothing to keep in it, nor to lock."""

    def opened(wiring: TaskWiring, cancelled: Callable[[], bool]) -> TaskStores:
        return open_stores(wiring, cancelled) if wiring.stage.stores else MemoryTaskStores(())

    return opened


def checkpoint_folder(cluster: Cluster, settings: WorkerSettings) -> CheckpointFolder:
    """Beside each task's database, so that checkpoints for savepoints are made of hard links."""

    def folder(wiring: TaskWiring) -> Path:
        place = task_directory(
            settings.state_dir, wiring.app, cluster.cluster_id, wiring.generation, wiring.id
        )
        return place.path / SAVEPOINT_FOLDER

    return folder


def run_worker(
    cluster: Cluster,
    wiring: Wiring,
    settings: WorkerSettings,
    *,
    observer: WorkerObserver | None = None,
    until_drained: bool = False,
    with_parent: bool = False,
    quiet_to: int | None = None,
    end_of_input: bool = False,
    watched: Callable[[Callable[[], None]], AbstractContextManager[None]] | None = None,
    clock: Clock | None = None,
    is_reachable: Callable[[], bool] | None = None,
    figures: FigureRequests | None = None,
    prepared_anew: Callable[[], Wiring] | None = None,
) -> None:
    """Run one worker in this thread until SIGINT, SIGTERM or, if asked for, the end of the input.

    When a source gets more partitions the worker ends its tasks and, with ``prepared_anew``, is made once more for what
    that returns; it is called until the catalog has the new partitions. Without, this raises ``PartitionsAdded``.

    ``watched`` is given what stops the worker, and entered while it runs: whoever hosts it may have reasons of its own.

    ``with_parent`` stops it, too, when the supervisor that started it closes its pipe or dies, and ``quiet_to`` is the
    pipe through which it tells the supervisor when it has nothing left to do. With ``end_of_input`` the input ends
    where it ends now: what waits for event time fires and closes once all before that is processed. Whatever stops it,
    it commits and closes; errors are raised after everything is closed. Raises ``Interrupted`` when a signal came
    before the end of the input that was asked for.

    ``figures`` are asked for by other threads while it runs.

    With ``is_reachable``, which says whether any broker answers, a process that is told to stop while none does is
    ended at once (``outage_exit``): for processes that do nothing else.
    """
    from stateflow.native.loading import (
        native_state,  # takes as long as much else of us, and is needed when it runs
    )

    clock = clock or SystemClock()
    allow_descriptors()  # before it makes clients and opens databases
    _LOG.info("The work is done by %s.", native_state())
    with ExitStack() as stack:
        code = Interrupted.exit_code if until_drained else 0
        leaving = None if is_reachable is None else OutageExit(is_reachable, code)
        if leaving is not None:
            stack.callback(leaving.close)
        in_turn = WorkersInTurn()

        def stop() -> None:
            in_turn.stop()
            if leaving is not None:
                leaving.begin()

        def live(wiring: Wiring) -> None:
            with ExitStack() as beside_it:
                worker = _made(cluster, wiring, settings, observer, clock, figures, beside_it)
                if end_of_input:
                    worker.end_input(source_ends(cluster, wiring.catalog))
                if quiet_to is not None:
                    worker.quiet.listener = QuietPipe(quiet_to)
                if until_drained:
                    worker.quiet.listener = here = QuietHere()
                    drain = Drain(cluster, wiring, here.last, are_all=False)
                    beside_it.enter_context(watching_drain(drain, worker.stop))
                in_turn.run(worker)

        if with_parent:
            stop_with_parent(stop)
        signalled = stack.enter_context(stopped_by_signals(stop))
        if watched is not None:
            stack.enter_context(watched(stop))
        in_turn.run_all(live, wiring, prepared_anew)
    if until_drained:
        check_not_interrupted(signalled)


def _made(
    cluster: Cluster,
    wiring: Wiring,
    settings: WorkerSettings,
    observer: WorkerObserver | None,
    clock: Clock,
    figures: FigureRequests | None,
    stack: ExitStack,
) -> Worker:
    """The worker, with what runs beside it until ``stack`` is left."""
    open_rocks = rocks_opener(cluster, settings, RocksResources.within(settings.memory), clock)
    copies = StandbyCopies(cluster, open_rocks, settings, clock) if settings.standby_replicas else None
    open_rocks = open_rocks if copies is None else copies.opener()
    open_stores: StoreOpener = open_rocks
    if settings.images is not None and settings.image_mode != "continuous":
        imaging = stack.enter_context(Imaging(cluster, open_objects(settings.images), settings, clock))
        open_stores = imaging.opener(open_rocks)
    open_stores = stateless_apart(open_stores)
    allowed = AllowedLocations(settings.places)
    folder = checkpoint_folder(cluster, settings)
    savepoints = SavepointParticipant(
        cluster,
        wiring.topology.app,
        clock,
        folder,
        allowed,
        written=wiring.written,
        on_stages=wiring.check_stages,
    )
    stack.enter_context(savepoints)
    name = settings.member or f"{socket.gethostname()}-{os.getpid()}"
    news = WorkerNews(StatusReports(cluster, wiring.topology.app, name, clock), figures)
    if copies is None:
        return Worker(
            cluster, wiring, open_stores, settings, clock, observer, savepoints=savepoints, news=news
        )
    placing = placing_on_disk(cluster, wiring, settings, copies, clock)
    worker = PlacedWorker(
        cluster, wiring, open_stores, settings, clock, placing, observer, savepoints=savepoints, news=news
    )
    stack.enter_context(beside(placing, copies))
    return worker
