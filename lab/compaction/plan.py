"""What the study runs: the grid of the DRSS'19 paper, our own points beside it, and other ways to bound a log.

The grid is segment.ms {100, 1000} × min.cleanable.dirty.ratio {0.01, 0.33, 0.66} × {fold-left, retain-all} state ×
partitions, in miniature: how restore time depends on log compaction (DRSS 2019).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from stateflow.compaction.model.streams import TOMBSTONE_BYTES, RateStep, State, Stream
from stateflow.compaction.model.workload import Bursts
from stateflow.compaction.settings.topic_settings import Policy
from stateflow.lab.compaction.live_cells import LiveOptions
from stateflow.lab.compaction.stock import StockOptions

AFTER_CLOSE_SECONDS = 0.5
GRID_SEGMENT_MS = (100, 1000)
GRID_DIRTY_RATIO = (0.01, 0.33, 0.66)


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """How large a study is. The defaults are the full one; :func:`quick_options` fits in ten minutes."""

    states: tuple[State, ...] = ("fold-left", "retain-all")
    partitions: tuple[int, ...] = (1, 4)
    repeats: int = 3
    seconds: float = 40.0
    warm_seconds: float = 15.0
    restores: int = 5
    keys: int = 10_000
    updates_per_second: float = 4000.0
    log_factors: tuple[float, ...] = (1.3, 1.5, 2.0)
    """Objectives: a log of at most so many times the records that it must hold may have to be restored."""
    trim_factors: tuple[float, ...] = (1.3, 1.5, 2.0)
    """The objectives of these at which policies without the cleaner are run, too."""
    trims: tuple[str, ...] = ("image + trim", "eventual")
    """These policies."""
    calibration_seconds: float = 6.0
    """Length of each of the ten calibration runs, warming up apart."""
    loop_seconds: float = 75.0
    loops: tuple[str, ...] = ("watched", "fixed 1000ms-0.33", "fixed 100ms-0.01")
    """What goes through the rate step: the tuner's loop, and settings that stay as they are."""
    stock: StockOptions = field(default_factory=StockOptions)
    seed: int = 1


def quick_options() -> StudyOptions:
    """A study of less than ten minutes: one state, one partition, every cell once."""
    return StudyOptions(
        states=("fold-left",),
        partitions=(1,),
        repeats=1,
        seconds=18.0,
        warm_seconds=8.0,
        restores=3,
        log_factors=(1.3, 1.5),
        trim_factors=(1.3,),
        trims=("image + trim",),
        calibration_seconds=4.0,
        loop_seconds=27.0,
        loops=("watched", "fixed 1000ms-0.33"),
        stock=StockOptions(
            seconds=125.0,
            warm_seconds=18.0,
            live=LiveOptions(cells=6, together=6, seconds=110.0, warm_seconds=20.0),
        ),
    )


@dataclass(frozen=True, slots=True)
class Setup:
    """One workload of the study."""

    state: State
    partitions: int
    stream: Stream

    @property
    def name(self) -> str:
        """Short name for files and tables."""
        return f"{self.state}-{self.partitions}p"

    @property
    def bursts(self) -> Bursts | None:
        """What a closing window of retain-all deletes."""
        if self.state == "fold-left":
            return None
        elements = self.stream.mean_rate() * self.stream.window_seconds
        return Bursts(elements, self.stream.window_seconds, elements, TOMBSTONE_BYTES)


def setups(options: StudyOptions) -> Iterator[Setup]:
    """The workloads, one after another."""
    for state in options.states:
        for partitions in options.partitions:
            stream = Stream(
                keys=options.keys,
                partitions=partitions,
                rates=(RateStep(0.0, options.updates_per_second),),
                # A log with windows is fullest when one has just closed: that is when its restore is measured.
                seconds=options.seconds + (AFTER_CLOSE_SECONDS if state == "retain-all" else 0.0),
                state=state,
                seed=options.seed,
            )
            yield Setup(state, partitions, stream)


def grid() -> Iterator[tuple[str, Policy]]:
    """The six policies of the paper, named."""
    for segment_ms in GRID_SEGMENT_MS:
        for dirty_ratio in GRID_DIRTY_RATIO:
            policy = Policy(segment_ms=segment_ms, dirty_ratio=dirty_ratio, **study_settings())
            yield f"{segment_ms}ms-{dirty_ratio:g}", policy


def study_settings() -> dict[str, int]:
    """What every cell of the study has in common: replaced files go at once, tombstones after five seconds."""
    return {"file_delete_delay_ms": 1000, "delete_retention_ms": 5000}


def loop_stream(options: StudyOptions) -> Stream:
    """The stream of the live loop: the update rate triples for the middle third, and falls back."""
    calm, third = 0.75 * options.updates_per_second, options.loop_seconds / 3
    return Stream(
        keys=options.keys,
        rates=(RateStep(0.0, calm), RateStep(third, 3 * calm), RateStep(2 * third, calm)),
        seconds=options.loop_seconds,
        seed=options.seed,
    )
