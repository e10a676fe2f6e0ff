"""The study: one load after the other, each in real time, and one that is killed and rescaled in the middle."""

from __future__ import annotations

import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stateflow.lab.linear_road.answers import Collector, Comparison, compare, percentile, time_of
from stateflow.lab.linear_road.generator import Load, Traffic
from stateflow.lab.linear_road.oracle import POSITION, Answer, answers
from stateflow.lab.linear_road.site import ANSWERS, PARTITIONS, Feed, Site, open_site

LATENCY_SECONDS_MAX = 5.0
"""The benchmark's bound for every answer."""
WORKERS = 2
_AFTER_SECONDS = 60.0
_LOOK_SECONDS = 0.2

Disturbance = tuple[float, int | None]
"""After this share of the time: so many partitions, or SIGKILL for a worker."""

KILL_AND_RESCALE: tuple[Disturbance, ...] = ((0.33, None), (0.5, 3), (0.65, PARTITIONS))


@dataclass(frozen=True, slots=True)
class Drive:
    """One run: a load, how much faster than on the road its time runs, and whether it is disturbed.

    An infinite pace is for throughput: all records are sent at once, and latency says nothing.
    """

    load: Load
    pace: float = 1.0
    disturbances: tuple[Disturbance, ...] = ()

    @property
    def is_disturbed(self) -> bool:
        """True where something is done to the workers."""
        return bool(self.disturbances)

    @property
    def is_rated(self) -> bool:
        """True where latency counts."""
        return not self.is_disturbed and math.isfinite(self.pace)

    @property
    def expressways(self) -> float:
        """How many expressways bring as many reports per second in real time.

        Of an infinite pace, how many there are.
        """
        return self.load.expressways * (self.pace if math.isfinite(self.pace) else 1.0)

    @property
    def name(self) -> str:
        """What pages and logs call it."""
        how = "" if self.is_rated else ", disturbed" if self.is_disturbed else ", at once"
        return f"{self.expressways:g} expressway{'' if self.expressways == 1 else 's'}{how}"


def quick_drives(seed: int) -> list[Drive]:
    """Four minutes of traffic in half a minute, up to the reports of four expressways."""
    loads = [Load(share, minutes=4, seed=seed) for share in (0.125, 0.25, 0.5)]
    rated = [Drive(load, pace=8) for load in loads]
    return [*rated, Drive(loads[-1], pace=math.inf), Drive(loads[0], pace=4, disturbances=KILL_AND_RESCALE)]


def full_drives(seed: int) -> list[Drive]:
    """The loads of the miniature, ten minutes each as on the road, the first once more with disturbances."""
    loads = [Load(share, seed=seed) for share in (0.1, 0.25, 0.5, 1, 2)]
    return [
        *map(Drive, loads),
        Drive(loads[-2], pace=math.inf),
        Drive(loads[1], disturbances=KILL_AND_RESCALE),
    ]


@dataclass(frozen=True, slots=True)
class DriveResult:
    """What came of one run. Latencies are from sending a report or query to reading its committed answer."""

    drive: Drive
    reports: int
    comparison: Comparison
    latencies: tuple[tuple[float, float], ...]
    """Moment of the question, seconds after the first, and latency of its answer, by moment."""
    cpu_seconds: float
    feed_late_seconds_max: float
    events: tuple[tuple[str, float], ...] = ()
    """What was done to the application, with the seconds from the first question."""

    def latency_seconds(self, percent: float) -> float:
        """A percentile of the latencies."""
        return percentile([latency for _, latency in self.latencies], percent)

    @property
    def is_within_bound(self) -> bool:
        """True when all answers were right and the slowest was there in time."""
        return self.comparison.is_exact and self.latency_seconds(100) <= LATENCY_SECONDS_MAX

    @property
    def share_in_time(self) -> float:
        """Of the answers that came, how many came in time."""
        in_time = sum(latency <= LATENCY_SECONDS_MAX for _, latency in self.latencies)
        return in_time / len(self.latencies) if self.latencies else 0.0

    @property
    def cpu_seconds_per_million(self) -> float:
        """CPU of the workers for a million position reports, from the first to the last."""
        return self.cpu_seconds / self.reports * 1e6

    def over_time(self, percent: float) -> list[tuple[float, float]]:
        """A percentile of the latencies for each second in which questions were asked."""
        by_second: dict[int, list[float]] = defaultdict(list)
        for at, latency in self.latencies:
            by_second[int(at)].append(latency)
        return [(float(at), percentile(of_second, percent)) for at, of_second in sorted(by_second.items())]

    def as_dict(self) -> dict[str, Any]:
        """The figures."""
        return {
            "expressways": self.drive.expressways,
            "pace": self.drive.pace if math.isfinite(self.drive.pace) else None,
            "disturbed": self.drive.is_disturbed,
            "events": [{"what": what, "at_seconds": round(at, 1)} for what, at in self.events],
            "reports": self.reports,
            "answers": self.comparison.right,
            "missing": self.comparison.missing,
            "wrong": self.comparison.wrong,
            **{f"latency_seconds_p{name}": round(self.latency_seconds(name), 3) for name in (50, 95, 99)},
            "latency_seconds_max": round(self.latency_seconds(100), 3),
            "share_in_time": round(self.share_in_time, 4),
            "cpu_seconds_per_million": round(self.cpu_seconds_per_million, 1),
            "feed_late_seconds_max": round(self.feed_late_seconds_max, 2),
        }


def run_drive(drive: Drive) -> DriveResult:
    """Drive one load on a broker of its own."""
    traffic = Traffic(drive.load)
    records = list(traffic.records())
    expected = answers(records, traffic.historical)
    events: list[tuple[str, float]] = []
    with (
        tempfile.TemporaryDirectory(prefix="stateflow-linear-road-") as place,
        open_site(Path(place)) as site,
    ):
        site.history(traffic.historical)
        site.run(WORKERS, PARTITIONS)
        site.warm_up()
        with closing(Collector(site.cluster, ANSWERS, PARTITIONS)) as collector:
            collector.start()
            feed = Feed(site.cluster, records, drive.pace)
            began, before = time.monotonic(), site.cpu_seconds
            feed.start()
            _disturb(site, feed, drive, lambda what: events.append((what, time.monotonic() - began)))
            _finish(site, feed, collector, expected)
            used = site.cpu_seconds - before
            site.stop()
    found = collector.answers
    first = feed.sent[min(feed.sent)]
    latencies = sorted(
        (feed.sent[time_of(answer)] - first, at - feed.sent[time_of(answer)]) for at, answer in found
    )
    return DriveResult(
        drive=drive,
        reports=sum(record[0] == POSITION for record in records),
        comparison=compare(expected, (answer for _, answer in found)),
        latencies=tuple(latencies),
        cpu_seconds=used,
        feed_late_seconds_max=feed.late_seconds_max,
        events=tuple(events),
    )


def _disturb(site: Site, feed: Feed, drive: Drive, note: Callable[[str], None]) -> None:
    for share, partitions in drive.disturbances:
        _wait_for(site, feed, int(drive.load.seconds * share))
        if partitions is None:
            note("kill -9")
            site.kill_a_worker()
            continue
        note(f"to {partitions} partitions")
        site.stop()
        site.rescale(partitions)
        site.run(WORKERS, partitions)


def _wait_for(site: Site, feed: Feed, second: int) -> None:
    while feed.is_alive() and feed.second < second:
        site.check()
        time.sleep(_LOOK_SECONDS)


def _finish(site: Site, feed: Feed, collector: Collector, expected: Sequence[Answer]) -> None:
    """Until every answer is there, or none has come for a minute."""
    wanted = sum(1 for answer in expected if answer[0] != 5)
    known, changed = -1, time.monotonic()
    while feed.is_alive() or len(collector.answers) < wanted:
        site.check()
        if len(collector.answers) != known:
            known, changed = len(collector.answers), time.monotonic()
        if time.monotonic() - changed > _AFTER_SECONDS:
            feed.stopped.set()
            return
        time.sleep(_LOOK_SECONDS)


def rated(results: Sequence[DriveResult]) -> DriveResult | None:
    """The run with the largest load that was answered rightly and in time; None where none was."""
    held = [result for result in results if result.drive.is_rated and result.is_within_bound]
    return max(held, key=lambda result: result.drive.expressways, default=None)


def summary(results: Sequence[DriveResult], mode: str, seed: int) -> dict[str, Any]:
    """The study as one JSON object: latencies of the rated run (the lightest where none is), CPU at full speed."""
    held = rated(results)
    best = held or next(result for result in results if result.drive.is_rated)
    at_once = next(result for result in results if math.isinf(result.drive.pace))
    return {
        "study": "linear-road",
        "mode": mode,
        "seed": seed,
        "rating": held.drive.expressways if held else 0,
        "answers": sum(result.comparison.right for result in results),
        "missing": sum(result.comparison.missing for result in results),
        "wrong": sum(result.comparison.wrong for result in results),
        "latency_seconds_p99": round(best.latency_seconds(99), 3),
        "latency_seconds_max": round(best.latency_seconds(100), 3),
        "cpu_seconds_per_million": round(at_once.cpu_seconds_per_million, 1),
        "runs": [result.as_dict() for result in results],
    }
