"""Running the cases, one after the other, and what they came to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stateflow.lab.endurance.cases import Endurance, Sent
from stateflow.lab.endurance.site import Site, open_site
from stateflow.lab.endurance.watching import LOOK_SECONDS, Watch
from stateflow.memory import MEMORY_BYTES

GAP_SECONDS_MAX = 3.0
"""The default commit interval is 1 s; a slice of work, a look from outside and a busy machine take the rest."""
TASK_BYTES = 4 << 20
"""A producer and a RocksDB of its own: `docs/operating.md` has it measured, with many tasks."""
_START_SECONDS_MAX = 240.0
_BACK_SECONDS_MAX = 60.0
"""Pauses between attempts are half a minute at most."""


@dataclass(slots=True)
class CaseResult:
    """What became of one case."""

    name: str
    about: str
    seconds: float = 0.0
    ended: bool = False
    """A worker ended that nobody had asked to."""
    stuck: bool = False
    """It did not come to its end in time, or did not stop when asked."""
    different: int = 0
    """Results that are missing, wrong or there more than once."""
    rss_mib_max: float = 0.0
    rss_limit_mib: float = 0.0
    commit_gap_seconds_max: float = 0.0
    blind_seconds: float = 0.0
    back_seconds: float = 0.0
    """From the return of a broker that was away to the first commit."""
    said: str = field(default="", repr=False)

    @property
    def is_over_limit(self) -> bool:
        """True when a process held more memory than it may."""
        return self.rss_mib_max > self.rss_limit_mib

    @property
    def is_bad(self) -> bool:
        """True when a promise was broken."""
        return (
            self.ended
            or self.stuck
            or self.different > 0
            or self.is_over_limit
            or self.commit_gap_seconds_max > GAP_SECONDS_MAX
        )

    def as_dict(self) -> dict[str, Any]:
        """The figures."""
        return {name: value for name, value in asdict(self).items() if name != "said"}


def rss_limit_bytes(case: Endurance) -> int:
    """What one of its processes may hold: the default limit, and what each task costs beside it."""
    return MEMORY_BYTES + case.tasks * TASK_BYTES


def run_case(case: Endurance, place: Path) -> CaseResult:
    """Run one case on a broker of its own."""
    result = CaseResult(case.name, case.about, rss_limit_mib=round(rss_limit_bytes(case) / 2**20, 1))
    began = time.monotonic()
    with open_site(case, place) as site:
        records = list(case.records())
        expected = case.expected(records)
        watch = Watch(site.cluster, site.app, site.output, case.partitions)
        _work(site, watch, records, sum(expected.values()), result)
        code = site.stop()
        result.ended = result.ended or code not in (0, None)
        result.stuck = result.stuck or code is None
        found = site.results()
        result.different = ((expected - found) + (found - expected)).total()
        result.said = site.said
    result.seconds = round(time.monotonic() - began, 1)
    result.rss_mib_max = round(watch.seen.rss_bytes_max / 2**20, 1)
    result.commit_gap_seconds_max = round(watch.seen.gap_seconds_max, 2)
    result.blind_seconds = round(watch.seen.blind_seconds, 1)
    result.back_seconds = round(watch.seen.back_seconds, 1)
    return result


def _work(site: Site, watch: Watch, records: Sequence[Sent], goal: int, result: CaseResult) -> None:
    """From the first record to the last result, or until something is wrong."""
    case = site.case
    first = len(records) // 2 if case.away_seconds else len(records)
    site.feed(records[:first])
    pid = site.start()
    _await(site, lambda: site.is_running, _START_SECONDS_MAX, result)
    if not result.is_bad:
        watch.begin()
    if case.away_seconds and not result.is_bad:
        _through_outage(site, result)
        returned_seconds = time.monotonic()
        watch.await_return()
        site.feed(records[first:])
        _await(site, lambda: watch.is_back(returned_seconds), _BACK_SECONDS_MAX, result)
    if not result.is_bad:
        with watch.looking(pid):
            _await(site, lambda: site.results().total() >= goal, case.seconds_max, result)


def _await(site: Site, happened: Callable[[], bool], seconds: float, result: CaseResult) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        if site.exit_code is not None:
            result.ended = True
            return
        if time.monotonic() > deadline:
            result.stuck = True
            return
        time.sleep(LOOK_SECONDS)


def _through_outage(site: Site, result: CaseResult) -> None:
    """The broker goes and comes back while the workers are watched: they must not end."""
    outage = threading.Thread(target=site.take_broker_away, args=(site.case.away_seconds,), name="outage")
    outage.start()
    while outage.is_alive():
        result.ended = result.ended or site.exit_code is not None
        outage.join(LOOK_SECONDS)


def summary(results: Sequence[CaseResult], mode: str) -> dict[str, Any]:
    """The study as one JSON object."""
    return {
        "study": "endurance",
        "mode": mode,
        "cases": len(results),
        "ended": sum(result.ended for result in results),
        "stuck": sum(result.stuck for result in results),
        "rss_over_limit": sum(result.is_over_limit for result in results),
        "commit_gap_seconds_max": max((result.commit_gap_seconds_max for result in results), default=0.0),
        "different": sum(result.different for result in results),
        "results": [result.as_dict() for result in results],
    }
