"""Jobs under fire: each run of a job is killed at random moments, started again, and its outcome compared.

A run's processes are killed one after the other, with SIGKILL: the Python process of a task, an executor's Java
process, or the driver with its Java process. Spark replaces the first two; the study starts a killed driver again, as
systemd would. A run that has not ended some minutes after its last kill is *stuck*.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from stateflow.lab.network.guarded_broker import Guarded
from stateflow.lab.spark_faults.cases import CASES, Case, is_over
from stateflow.lab.spark_faults.standalone import (
    Standalone,
    cluster_environment,
    descendants,
    executors,
    is_program,
    kill_tree,
    python_workers,
    standalone,
)
from stateflow.log.kafka import connect
from stateflow.spark.submit import Submission, write_copy

TARGETS = ("python-worker", "executor", "driver")
_LOOK_SECONDS = 0.1
_STRIKE_SECONDS_MAX = 2.0
"""After Python processes are at work: small jobs take some seconds from there on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOptions:
    """How much is done."""

    kills: int = 200
    """In all, over all jobs in turn."""
    kills_per_run: int = 6
    """At most: a job may be done before. The more, the fewer starts of Spark there are, which is what takes time."""
    size: int = 20_000
    """Keys of each job's state."""
    seed: int = 1
    """Of the first run; each further one has the next number."""
    seconds_max: float | None = None
    """No further run begins after this, however few were killed, which is told."""
    stuck_seconds: float = 300.0
    jobs: tuple[str, ...] = tuple(CASES)


@dataclass(frozen=True, slots=True)
class Address:
    """How the study reaches the broker, and what jobs are told."""

    brokers: str
    of_jobs: tuple[str, ...]


@contextmanager
def guarded_address(folder: Path) -> Iterator[Address]:
    """A broker that wants TLS and a password of jobs; they have what they need from a file."""
    guarded = Guarded(folder)
    file = folder / "client.properties"
    settings = {**guarded.settings("SASL_SSL", "PLAIN"), "bootstrap.servers": guarded.address("SASL_SSL")}
    file.touch(mode=0o600)
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with guarded.kafka:
        yield Address(guarded.kafka.bootstrap, ("--client-config", str(file)))


@dataclass(slots=True)
class JobFaults:
    """What came of all runs of one job."""

    runs: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    twice: int = 0
    stuck: int = 0
    seconds: float = 0.0
    failed: int = 0
    """Runs that ended with an error although nobody had killed their driver: Spark gave up, or they did."""

    @property
    def is_clean(self) -> bool:
        """True when nothing is lost, doubled or stuck."""
        return not (self.lost or self.twice or self.stuck)

    def as_dict(self) -> dict[str, object]:
        """As JSON has it."""
        return {
            "runs": self.runs,
            "kills": {target: self.kills[target] for target in TARGETS},
            "lost": self.lost,
            "twice": self.twice,
            "stuck": self.stuck,
            "restarts_after_errors": self.failed,
            "seconds": round(self.seconds),
        }

    def add(self, run: JobFaults) -> None:
        """What came of some more runs."""
        self.kills.update(run.kills)
        self.runs, self.failed, self.seconds = (
            self.runs + run.runs,
            self.failed + run.failed,
            self.seconds + run.seconds,
        )
        self.lost, self.twice, self.stuck = (
            self.lost + run.lost,
            self.twice + run.twice,
            self.stuck + run.stuck,
        )


@dataclass(slots=True)
class FaultStudy:
    """All jobs."""

    seed: int
    by_job: dict[str, JobFaults] = field(default_factory=dict)
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    """The command that repeats each run in which something was lost, doubled or stuck."""

    @property
    def kills(self) -> int:
        """Processes killed."""
        return sum(job.kills.total() for job in self.by_job.values())

    @property
    def is_clean(self) -> bool:
        """True when nothing is lost, doubled or stuck."""
        return all(job.is_clean for job in self.by_job.values())

    def summary(self) -> dict[str, object]:
        """As JSON has it."""
        jobs = self.by_job
        return {
            "jobs": {name: job.as_dict() for name, job in jobs.items()},
            "kills": self.kills,
            "lost": sum(job.lost for job in jobs.values()),
            "twice": sum(job.twice for job in jobs.values()),
            "stuck": sum(job.stuck for job in jobs.values()),
            "seed": self.seed,
            "failures": self.failures,
            "seconds": round(self.seconds, 1),
        }


def study_spark_faults(
    address: Address, options: FaultOptions, folder: Path, tell: Callable[[str], None]
) -> FaultStudy:
    """Run jobs in turn until so many processes are killed, or the time is over."""
    study = FaultStudy(options.seed, {job: JobFaults() for job in options.jobs})
    began, number = time.monotonic(), 0
    with closing(connect(address.brokers)) as cluster, standalone(folder) as spark:
        while study.kills < options.kills:
            if options.seconds_max is not None and time.monotonic() - began > options.seconds_max:
                tell(f"the time is over after {study.kills} of {options.kills} kills")
                break
            job, seed = options.jobs[number % len(options.jobs)], options.seed + number
            rng = random.Random(seed)  # noqa: S311 - moments to strike at
            own = folder / f"run-{number}"
            own.mkdir()
            case = CASES[job](cluster, address.of_jobs, own, options.size)
            count = min(options.kills_per_run, options.kills - study.kills)
            found = JobFaults(runs=1)
            begun = time.monotonic()
            _Run(case, spark, [rng.choice(TARGETS) for _ in range(count)], rng, options, found).run()
            found.seconds = time.monotonic() - begun
            if not found.is_clean:
                again = f"stateflow study spark-faults --job {job} --kills {count} --size {options.size} --seed {seed}"
                study.failures.append(again)
                tell(f"FAILED: {found.as_dict()}; once more: {again}; the driver said: {_last_lines(own)}")
            study.by_job[job].add(found)
            number += 1
            tell(f"{job}, seed {seed}: {found.as_dict()}, {study.kills} kills in all")
    study.seconds = time.monotonic() - began
    return study


def _last_lines(folder: Path) -> str:
    return " | ".join((folder / "driver.log").read_text(errors="replace").splitlines()[-5:])


class _Run:
    """One case under fire."""

    def __init__(
        self,
        case: Case,
        spark: Standalone,
        targets: Sequence[str],
        rng: random.Random,
        options: FaultOptions,
        result: JobFaults,
    ) -> None:
        self._case = case
        self._spark = spark
        self._left = list(targets)
        self._rng = rng
        self._options = options
        self._result = result
        self._attempts = 0
        self._program = case.folder / "job.py"
        write_copy(case.job, self._program)

    def run(self) -> None:
        """Until it has ended well; then compare."""
        deadline = time.monotonic() + self._options.stuck_seconds
        with (self._case.folder / "driver.log").open("w") as log:
            while True:
                driver = self._start(log.fileno())
                try:
                    ended = self._strike(driver, deadline)
                finally:
                    kill_tree(driver.pid)
                    driver.wait()
                if ended is not None:
                    break
                deadline = time.monotonic() + self._options.stuck_seconds
        if not ended:
            self._result.stuck += 1
            return
        verdict = self._case.verdict()
        self._result.lost += verdict.lost
        self._result.twice += verdict.twice

    def _start(self, log: int) -> subprocess.Popen[bytes]:
        arguments = self._case.arguments(self._attempts)
        self._attempts += 1
        submission = Submission(
            program=self._program, arguments=arguments, master=self._spark.url, conf=self._spark.conf
        )
        environment = {**cluster_environment(), **submission.environment()}
        return subprocess.Popen(
            submission.command(),
            env=environment,
            cwd=self._case.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def _strike(self, driver: subprocess.Popen[bytes], deadline: float) -> bool | None:
        """Kill amid the work. True when the run has ended well, False when it is stuck, None to start it again."""
        strike_at: float | None = None
        while time.monotonic() < deadline:
            code = driver.poll()
            if code is not None:
                return self._ended(code)
            if not self._case.ends_by_itself and not self._left and is_over(self._case):
                return self._stopped(driver, deadline)
            if self._left and strike_at is None and python_workers():
                strike_at = time.monotonic() + self._rng.uniform(0.0, _STRIKE_SECONDS_MAX)
            if self._left and strike_at is not None and time.monotonic() >= strike_at:
                strike_at = None
                if self._kill(self._left[0], driver):
                    self._result.kills[target := self._left.pop(0)] += 1
                    deadline = time.monotonic() + self._options.stuck_seconds
                    if target == "driver":
                        return None
            time.sleep(_LOOK_SECONDS)
        return False

    def _kill(self, target: str, driver: subprocess.Popen[bytes]) -> bool:
        """False where there was nothing of the kind at work."""
        if target == "driver":
            kill_tree(driver.pid)
            return True
        found = executors() if target == "executor" else python_workers()
        if not found:
            return False
        with suppress(ProcessLookupError):
            os.kill(self._rng.choice(found), signal.SIGKILL)
            return True
        return False

    def _ended(self, code: int) -> bool | None:
        """A driver that gave up is started again, as whoever looks after it would; not for ever."""
        if code == 0:
            return True
        if self._case.job == "repartition" and self._is_done_before():
            return True
        self._result.failed += 1
        return None if self._attempts < 3 * self._options.kills_per_run else False

    def _is_done_before(self) -> bool:
        """The driver was killed behind its last step: another attempt says that there is nothing left to do."""
        return "already has 5 partitions" in (self._case.folder / "driver.log").read_text()

    def _stopped(self, driver: subprocess.Popen[bytes], deadline: float) -> bool:
        """Ask the program itself, which spark-submit has started, to end."""
        for pid in [pid for pid in descendants(driver.pid) if is_program(pid, self._program)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            driver.wait(max(1.0, deadline - time.monotonic()))
            return True
        return False
