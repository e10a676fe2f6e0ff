"""A running application on YARN under fire: its master, executors and Python workers killed; YARN starts them again.

Submitted once, in cluster mode, with a packed environment, as docs/spark-clusters.md has it. Nothing here starts
anything again. After each kill the application is fed, and must have told of all its input before the next one.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from stateflow.lab.spark_faults.cases import Pipeline, is_over
from stateflow.lab.spark_faults.packed import packed_environment
from stateflow.lab.spark_faults.standalone import (
    QUICK_JVM,
    command_of,
    descendants,
    executors,
    python_workers,
    running_tree,
)
from stateflow.lab.spark_faults.study import Address, FaultOptions, FaultStudy, JobFaults
from stateflow.lab.spark_faults.yarn import Yarn, yarn_cluster
from stateflow.log.kafka import connect
from stateflow.spark.submit import spark_submit, write_copy

JOB = "pipeline-on-yarn"
_MASTER = "org.apache.spark.deploy.yarn.ApplicationMaster"
_LOOK_SECONDS = 0.5
_WORKERS = 2
_STRIKE_SECONDS_MAX = 3.0
_TARGETS = ("driver", "python-worker", "executor")


def study_yarn(
    address: Address, options: FaultOptions, folder: Path, tell: Callable[[str], None]
) -> FaultStudy:
    """Kill in turn the application's master, an executor and a Python worker, until so many are killed."""
    study = FaultStudy(options.seed, {JOB: JobFaults(runs=1)})
    began = time.monotonic()
    environment = packed_environment(folder)
    tell(f"packed an environment: {environment.stat().st_size >> 20} MiB in {time.monotonic() - began:.0f} s")
    with closing(connect(address.brokers)) as cluster, yarn_cluster(folder) as yarn:
        own = folder / "application"
        own.mkdir()
        case = Pipeline(cluster, address.of_jobs, own, options.size)
        with _submitted(case, yarn, environment):
            _Fire(case, yarn, options, study.by_job[JOB], tell).run()
    study.seconds = study.by_job[JOB].seconds = time.monotonic() - began
    return study


@contextmanager
def _submitted(case: Pipeline, yarn: Yarn, environment: Path) -> Iterator[None]:
    """The application on the cluster for the time of the block."""
    write_copy(case.job, case.folder / "pipeline.py")
    arguments = case.arguments(0)
    files = []
    if "--client-config" in arguments:  # executors and the master's container have it by its name
        at = arguments.index("--client-config") + 1
        files, arguments[at] = ["--files", arguments[at]], Path(arguments[at]).name
    arguments[0] = "app:app"
    conf = {
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": "./environment/bin/python",
        "spark.executorEnv.PYSPARK_PYTHON": "./environment/bin/python",
        "spark.yarn.maxAppAttempts": "100",
        "spark.yarn.am.attemptFailuresValidityInterval": "1h",
        "spark.yarn.stagingDir": str(case.folder),
        # The jars lie on this one machine; elsewhere Spark brings them along.
        "spark.yarn.jars": f"local:{spark_submit().parents[1] / 'jars'}/*",
        "spark.executor.instances": str(_WORKERS),
        "spark.executor.cores": "1",
        "spark.executor.memory": "500m",
        "spark.executor.memoryOverhead": "500m",
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.driver.memory": "500m",
    }
    command = [str(spark_submit()), "--master", "yarn", "--deploy-mode", "cluster"]
    command += ["--archives", f"{environment}#environment", "--py-files", "app.py", *files]
    command += [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    with (case.folder / "submit.log").open("w") as log:
        environment_of_client = {**yarn.environment(), "PYSPARK_PYTHON": "./environment/bin/python"}
        submitted = [*command, "pipeline.py", *arguments]
        with running_tree(submitted, environment_of_client, case.folder, log.fileno()):
            yield


@dataclass(slots=True)
class _Fire:
    """The kills, and what comes of them."""

    case: Pipeline
    yarn: Yarn
    options: FaultOptions
    result: JobFaults
    tell: Callable[[str], None]
    _rng: random.Random = field(init=False)
    _fed: int = 0

    def __post_init__(self) -> None:
        self._rng = random.Random(self.options.seed)  # noqa: S311 - moments to strike at

    def run(self) -> None:
        """Until so many are killed; then compare, and end the application."""
        if not self._is_quiet_in_time():
            self.result.stuck += 1
            return
        for number in range(self.options.kills):
            self._feed()
            target = _TARGETS[number % len(_TARGETS)]
            self._kill(target)
            began = time.monotonic()
            if target == "driver":  # whose executors work on for a moment: what is fed next is for others
                self._await(lambda: bool(masters()), "another master")
            self._feed()
            if not self._is_quiet_in_time():
                self.result.stuck += 1
                return
            self.tell(f"{target} killed: all told after {time.monotonic() - began:.0f} s")
        (application,) = [str(found["id"]) for found in self.yarn.applications()]
        self.tell(f"its master was started {self.yarn.attempts(application)} times")
        self.yarn.end(application)
        self._await(lambda: not executors(), "its executors end")
        verdict = self.case.verdict()
        self.result.lost, self.result.twice = verdict.lost, verdict.twice

    def _feed(self) -> None:
        self._fed += 1
        self.case.arguments(self._fed)  # which feeds the application, too

    def _kill(self, target: str) -> None:
        """Wait for one of the kind, and a moment, and kill it."""
        while True:
            time.sleep(self._rng.uniform(0.0, _STRIKE_SECONDS_MAX))
            found = {"driver": masters, "executor": executors, "python-worker": python_workers}[target]()
            if found:
                with suppress(ProcessLookupError):
                    os.kill(self._rng.choice(found), signal.SIGKILL)
                    self.result.kills[target] += 1
                    return

    def _is_quiet_in_time(self) -> bool:
        return self._await(lambda: is_over(self.case), "all output")

    def _await(self, condition: Callable[[], bool], what: str) -> bool:
        deadline = time.monotonic() + self.options.stuck_seconds
        while not condition():
            if time.monotonic() > deadline:
                self.tell(f"stuck: waited in vain for {what}; see {self.yarn.logs}")
                return False
            time.sleep(_LOOK_SECONDS)
        return True


def masters() -> list[int]:
    """Java processes of application masters below this one; the driver's Python program is their child."""
    return [
        pid
        for pid in descendants(os.getpid())
        if _MASTER in command_of(pid) and Path(command_of(pid).split()[0]).name == "java"
    ]
