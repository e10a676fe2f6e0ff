"""What each kind of event does. The application runs before it and after it."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Mapping

from stateflow.errors import ObjectiveUnreachable, SavepointFailed
from stateflow.lab.chaos.plan import Event, Kind
from stateflow.lab.chaos.running import PASSING, send
from stateflow.lab.chaos.site import SAVEPOINTS, Site
from stateflow.scale.generation import preparing

_UNMADE = PASSING | {SavepointFailed.exit_code}
"""A savepoint of a running application may fail as its workers do; nothing of it is left then."""
_UNREACHABLE = frozenset((ObjectiveUnreachable.exit_code,))
"""What the load of a moment says, which on a busy machine may be that no setting will do; nothing is changed then."""
_TUNED = ("--restore-within", "20s", "--seconds", "1s")
"""A changelog is watched so long, one after the other: what is recommended may be poor, and must do no harm."""


def carry_out(site: Site, event: Event) -> None:
    """Let it happen."""
    time.sleep(event.pause_seconds)
    site.processes.check()
    ACTIONS[event.kind](site, event)


def _kill_worker(site: Site, event: Event) -> None:
    pid = site.processes.worker(event.target)
    if pid is None:
        site.report.note_stuck(f"worker w{event.target} was not started again")
    else:
        send(pid, signal.SIGKILL)


def _freeze_worker(site: Site, event: Event) -> None:
    pid = site.processes.worker(event.target)
    if pid is None:
        site.report.note_stuck(f"worker w{event.target} was not started again")
        return
    send(pid, signal.SIGSTOP)
    time.sleep(event.seconds)
    send(pid, signal.SIGCONT)


def _kill_all(site: Site, event: Event) -> None:  # noqa: ARG001 - all actions are called alike
    site.processes.kill()
    site.processes.start()


def _kill_supervisor(site: Site, event: Event) -> None:
    site.processes.kill_supervisor(at_once=event.at_once)


def _kill_broker(site: Site, event: Event) -> None:
    site.own_kafka.nodes[event.target].kill()
    _return_after(site, event)


def _restart_broker(site: Site, event: Event) -> None:
    site.own_kafka.nodes[event.target].stop()
    _return_after(site, event)


def _return_after(site: Site, event: Event) -> None:
    time.sleep(event.seconds)
    site.own_kafka.restart_node(event.target + 1)


def _stop(site: Site, event: Event) -> None:  # noqa: ARG001 - all actions are called alike
    site.processes.stop()
    site.processes.start()


def _stop_without_broker(site: Site, event: Event) -> None:
    site.own_kafka.nodes[event.target].kill()
    site.processes.stop()
    _return_after(site, event)
    site.processes.start()


def _lose_disk(site: Site, event: Event) -> None:
    _halt(site, event)
    shutil.rmtree(site.processes.state_dir, ignore_errors=True)
    site.processes.start()


def _scale(site: Site, event: Event) -> None:
    _halt(site, event)
    _command(site, "scale start", *_change(site, event))
    site.processes.start()
    if event.finishes:
        _command(site, "scale finalize", "--yes")


def _scale_killed(site: Site, event: Event) -> None:
    _halt(site, event)
    change = _change(site, event)
    site.processes.command_killed(
        "scale start (killed)",
        *("scale", "start", *change, "--app", site.app),
        begun=lambda: preparing(site.catalog()) is not None,
        after_seconds=event.seconds,
    )
    under_way = preparing(site.catalog()) is not None
    if under_way and event.finishes:
        _command(site, "scale start", *change)
    elif under_way:
        _command(site, "scale abort", "--yes")
    site.processes.start()


def _savepoint(site: Site, event: Event) -> None:  # noqa: ARG001 - all actions are called alike
    _make_savepoint(site)


def _savepoint_stopped(site: Site, event: Event) -> None:
    _halt(site, event)
    _make_savepoint(site)
    site.processes.start()


def _savepoint_restore(site: Site, event: Event) -> None:
    """Nothing is processed between the savepoint and its restore: so no output is written a second time."""
    _halt(site, event)
    name = _make_savepoint(site)
    if name is not None:
        _command(site, "savepoint restore", name)
        if event.kills:  # its images on this disk, and those sent, are of another generation
            shutil.rmtree(site.processes.state_dir, ignore_errors=True)
    site.processes.start()


def _images(site: Site, event: Event) -> None:
    """Images are made of what is on the disk, the disk is lost, and the workers begin with the images."""
    _halt(site, event)
    if site.has_state():  # killed before it opened a task, it has left nothing to make an image of
        _command(site, "checkpoint create")
    shutil.rmtree(site.processes.state_dir, ignore_errors=True)
    site.processes.start()


def _compaction(site: Site, event: Event) -> None:
    if _command(site, "compaction apply", *_TUNED, refusals=_UNREACHABLE) and not event.finishes:
        _command(site, "compaction rollback")


ACTIONS: Mapping[Kind, Callable[[Site, Event], None]] = {
    "kill-worker": _kill_worker,
    "kill-all": _kill_all,
    "kill-supervisor": _kill_supervisor,
    "freeze-worker": _freeze_worker,
    "kill-broker": _kill_broker,
    "restart-broker": _restart_broker,
    "stop": _stop,
    "stop-without-broker": _stop_without_broker,
    "lose-disk": _lose_disk,
    "scale": _scale,
    "scale-killed": _scale_killed,
    "savepoint": _savepoint,
    "savepoint-stopped": _savepoint_stopped,
    "savepoint-restore": _savepoint_restore,
    "images": _images,
    "compaction": _compaction,
}


def _halt(site: Site, event: Event) -> None:
    if event.kills:
        site.processes.kill()
    else:
        site.processes.stop()


def _command(site: Site, name: str, *arguments: str, refusals: frozenset[int] = frozenset()) -> bool:
    noun, verb = name.split()
    return site.processes.command(name, noun, verb, *arguments, "--app", site.app, refusals=refusals)


def _change(site: Site, event: Event) -> tuple[str, ...]:
    """The change that the event wants; one that was killed too late to be undone may have come there before it."""
    there = site.catalog().active.routing.partitions
    wanted = event.partitions + (event.partitions == there)
    return "--partitions", str(wanted), "--engine", "local"


def _make_savepoint(site: Site) -> str | None:
    """Its name; None when it could not be made, which is a finding."""
    name = f"s{site.report.exit_codes['savepoint create'].total()}"
    arguments = ("savepoint", "create", name, "--to", str(site.place / SAVEPOINTS), "--app", site.app)
    return name if site.processes.command("savepoint create", *arguments, passing=_UNMADE) else None
