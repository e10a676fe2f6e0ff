"""One case of the crash matrix: a fault strikes, somebody takes over, the history ends, everything is compared.

The fault is *injected* only when the armed process announced it, or the proxy caught its request; a case in which
that did not happen says nothing about the product and is never counted as passed.
"""

from __future__ import annotations

import signal
import time
import traceback
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path

from stateflow.failpoints import Strike
from stateflow.lab.faults.matrix.checks import Findings, check
from stateflow.lab.faults.matrix.companions import creation
from stateflow.lab.faults.matrix.network import spoilt
from stateflow.lab.faults.matrix.plan import Case
from stateflow.lab.faults.matrix.site import CaseError, Lane, Member, Site, Stuck
from stateflow.lab.faults.matrix.situations import (
    SETTINGS,
    SITUATIONS,
    images_of,
    lose_disk,
)

_SURVIVES_SECONDS = 1.5
_ZOMBIE_SECONDS = 3.0
_SUCCESSOR = "w1"


@dataclass(frozen=True, slots=True)
class Result:
    """How one case ended."""

    case: Case
    injected: bool
    findings: Findings
    stuck: str
    """What did not come in time, or the error that ended the case; empty when it came to its end."""
    codes: tuple[int, ...]
    """What its processes ended with."""
    seconds: float
    said: str = field(repr=False, default="")
    """What its processes wrote, when something is wrong."""
    repeated: bool = False
    """Run a second time, as its fault had not struck in the first."""

    @property
    def says_nothing(self) -> bool:
        """True when the fault never struck and nothing was found: late, mostly, and then perhaps stuck too."""
        found = self.findings
        return not self.injected and not (found.lost or found.silent or found.problems)

    @property
    def is_bad(self) -> bool:
        """True when something is wrong: a passed case was injected and is not bad."""
        found = self.findings
        return bool(self.stuck or found.lost or found.silent or found.problems)

    @property
    def why(self) -> str:
        """What is wrong, in short."""
        return "; ".join(filter(None, [self.stuck, *self.findings.problems]))


def run_case(case: Case, lane: Lane, place: Path) -> Result:
    """Run one case in a folder of its own. Raises ``Interrupted`` when the lane is cancelled."""
    begun = time.monotonic()
    settings = {
        "STATEFLOW_GUARANTEE": case.guarantee,
        "STATEFLOW_COMMIT_MODE": case.commit_mode,
        "STATEFLOW_SHARED_WRITERS": str(case.shared_writers),
        **SETTINGS.get(case.situation, {}),
    }
    app = f"faults-{uuid.uuid4().hex[:10]}"
    site = Site(lane, place / app, app, case.seed, settings)
    findings, stuck, said = Findings(), "", ""
    try:
        try:
            _inject_and_recover(site, case)
            findings = check(site.cluster, site.catalog, site.oracle, site.disks, f"{app}-out", place / app)
            _check_images(site, findings)
        except CaseError as error:
            lane.check()
            stuck = str(error) or type(error).__name__
            site.show_stacks()
            said = "".join(traceback.format_exception(error))
        result = Result(case, site.injected, findings, stuck, _codes(site), time.monotonic() - begun, said)
        return replace(result, said=said + site.said()) if result.is_bad else result
    finally:
        site.close()


def _inject_and_recover(site: Site, case: Case) -> None:
    """Let it come to the fault, and to an end."""
    if case.situation == "network":
        with spoilt(site, case):
            _finish(site)
        return
    strike = Strike(case.point, case.fault, case.hit)  # type: ignore[arg-type]  # no network fault comes here
    struck = SITUATIONS[case.situation](site, strike)
    site.injected = struck is not None
    if struck is None:
        _disarm(site)
    elif struck.is_worker:
        _recover_worker(site, struck, case)
    else:
        _recover_tool(site, struck, case)
    _finish(site)


def _disarm(site: Site) -> None:
    """Let nothing strike any more, where it did not come to that in time."""
    for member in site.members:
        if member.strike is not None:
            site.kill(member)
            if member.is_worker:
                site.again(member)


def _recover_worker(site: Site, struck: Member, case: Case) -> None:
    site.feed(10)
    if case.fault == "stop":
        _outlive_zombie(site, struck)
    elif case.fault == "kill" or site.happens(lambda: site.state(struck).code is not None, _SURVIVES_SECONDS):
        site.await_ended(struck)
        _succeed(site, struck)


def _succeed(site: Site, ended: Member) -> None:
    """Let somebody take over: the same worker on its disk, or on an empty one, or another worker."""
    how = site.random.choice(["same disk", "empty disk", "another"])
    others = [member for member in _live(site) if member is not ended]
    if how == "another":
        successor = others[0] if others else site.worker(_SUCCESSOR)
    else:
        if how == "empty disk":
            lose_disk(site, ended.disk.name)
        site.again(ended)
        successor = ended
    site.drain(successor, *others)


def _outlive_zombie(site: Site, zombie: Member) -> None:
    """Another worker takes everything; then the one that hung wakes up and must do no harm."""
    others = [member for member in _live(site) if member is not zombie]
    others = others or [site.worker(_SUCCESSOR)]
    site.drain(*others)
    site.feed(10)
    site.signal(zombie, signal.SIGCONT)
    site.feed(10)
    site.happens(lambda: site.state(zombie).code is not None, _ZOMBIE_SECONDS if zombie.name == "gc" else 1.0)
    site.drain(*others)


def _recover_tool(site: Site, struck: Member, case: Case) -> None:
    """Run the tool again, beside the one that hangs if it does; then begin with what it left."""
    if case.fault != "stop":
        site.await_ended(struck)
    if case.situation == "saving":  # half a savepoint is no savepoint; its name may be taken
        site.run_when_possible("save again", creation(site, "two"))
    else:
        site.run_when_possible(f"{struck.name} again", struck.arguments)
    if case.fault == "stop":
        site.signal(struck, signal.SIGCONT)
        site.await_ended(struck)
    site.forget_catalog()
    if case.situation == "collecting":
        lose_disk(site, "w0")
    site.drain(*(_live(site) or [site.worker("w0")]))


def _finish(site: Site) -> None:
    """The rest of the history; then everybody commits and stops."""
    live = _live(site) or [site.worker("w0")]
    site.feed(10)
    site.drain(*live)
    for tool in site.members:
        if not tool.is_worker:
            site.await_ended(tool)
    live = _live(site)
    site.stop(*live)
    failed = [f"{member.name} with {member.codes[-1]}" for member in live if member.codes[-1] != 0]
    if failed:
        raise Stuck(f"did not stop cleanly: {', '.join(failed)}")


def _live(site: Site) -> list[Member]:
    return [member for member in site.members if member.is_worker and site.state(member).code is None]


def _check_images(site: Site, findings: Findings) -> None:
    """Every image that is published is whole."""
    for name, images in images_of(site).items():
        problems = images.verify(images.load(name))
        if problems:
            findings.differ(f"the image {name}", problems, "none")


def _codes(site: Site) -> tuple[int, ...]:
    return tuple(code for member in site.members for code in member.codes)
