"""What the test folders share: the broker, and the processes that the tests are dealt out to."""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from stateflow.connectors.broker.node import JVM_VARIABLE
from stateflow.errors import SetupError
from tests.class_archive import (
    SHORT_LIVED_JVM,
    archive_arguments,
    broker_program,
    make_archive,
    spark_program,
)
from tests.compiled_first import CompiledFirst, wait_for_compiled
from tests.dealing import sort_long_first
from tests.prepared import Preparation
from tests.shared_broker import BrokerLender, RunBroker, open_broker
from tests.temporary_files import make_folder, remove_folder
from tests.time_slices import DEFAULT_SECONDS, LONG_SECONDS, TimeSlices

if TYPE_CHECKING:  # pytest-xdist is needed only where it is asked for: by `-n`, as `dev.py test` does
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

    from tests.lanes import Lanes

LANES_MAX = 8
WAITING_LANES = 3  # more processes than cores: tests on a broker mostly wait for what it does

# How long an example takes says how busy the machine is, with several processes at work.
settings.register_profile("shared cores", settings.default, deadline=None)
settings.load_profile("shared cores")

PREPARATION: pytest.StashKey[Preparation] = pytest.StashKey()
IN_MEMORY: pytest.StashKey[Path] = pytest.StashKey()
"""The folder of the run's temporary files, where they are in memory."""


def pytest_configure(config: pytest.Config) -> None:
    """Choose the place of temporary files; let Ctrl-C mean what it means at a terminal, in what the tests start, too.

    A shell that starts a run in the background has it ignored by all its descendants.
    """
    config.stash[PREPARATION] = Preparation()
    if not hasattr(config, "workerinput") and (folder := make_folder()) is not None:
        config.stash[IN_MEMORY] = folder
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """What `-n auto` means: some more processes than cores; and `-n logical`: as many."""
    waiting = WAITING_LANES if config.option.numprocesses == "auto" else 0
    return min((os.cpu_count() or 1) + waiting, LANES_MAX)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Lanes | None:
    """Deal files out in the order that the processes collect them in."""
    if config.option.dist != "loadfile":
        return None
    from tests.lanes import Lanes

    config.option.loadscopereorder = False
    return Lanes(config, log, config.stash[PREPARATION])


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Where one process does it all, wait until what the tests need is ready."""
    if not session.config.option.collectonly and session.config.getoption("dist", "no") == "no":
        session.config.stash[PREPARATION].wait()


LENDER: pytest.StashKey[BrokerLender] = pytest.StashKey()
COMPILED: pytest.StashKey[CompiledFirst] = pytest.StashKey()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tell each process where to ask for the broker, and when to import the tests."""
    stash = node.config.stash
    if LENDER not in stash:
        stash[LENDER] = BrokerLender()
        stash[COMPILED] = CompiledFirst()
    node.workerinput["broker_lender"] = stash[LENDER].address
    node.workerinput["compiled_first"] = stash[COMPILED].path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: WorkerController) -> None:
    """The first process has imported the tests, and so compiled all of them: the others may."""
    node.config.stash[COMPILED].done()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Let one process compile the tests, and what they import, instead of all at the same time.

    Nearly all of what is made here stays, so the garbage collector would take an eighth of the time for nothing.
    """
    given = getattr(session.config, "workerinput", {})
    if "compiled_first" in given and given["workerid"] != "gw0":
        wait_for_compiled(given["compiled_first"])
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what asks for a broker, and begin with what takes long, where several processes share the work."""
    for item in items:
        if "broker" in getattr(item, "fixturenames", ()):
            item.add_marker("broker")
    if hasattr(config, "workerinput"):
        sort_long_first(items)


def pytest_collection_finish() -> None:
    """Spare the garbage collector the tests and their modules: thousands of them stay to the end."""
    from stateflow.lab.pool import spare_what_stays  # by now the tests have imported most of what it needs

    spare_what_stays()


_slices = TimeSlices()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let a test that only computes keep its core longer."""
    waits = any(item.get_closest_marker(kind) for kind in ("broker", "spark"))
    _slices.ask_for(DEFAULT_SECONDS if waits else LONG_SECONDS)
    return (yield)


_threads_total = 0


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """End the Kafka clients that a test has dropped without closing them, as killed owners do.

    They end when they are collected, which is seldom here. Until then each gathers statistics, 20 times a second and
    sorted into a queue that nobody serves: with some dozen of them that came to most of what a process did.
    """
    global _threads_total
    yield
    if _count_threads() > _threads_total:
        gc.collect()
        _threads_total = _count_threads()


def _count_threads() -> int:
    """All threads of this process, of libraries too; 0 where that cannot be told so easily."""
    return len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 0


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """Say where the files of tests are that have failed: the next run removes them."""
    if exitstatus == pytest.ExitCode.TESTS_FAILED and IN_MEMORY in config.stash:
        terminalreporter.write_line(f"files of this run, in memory until the next: {config.stash[IN_MEMORY]}")
        del config.stash[IN_MEMORY]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Let everything be collected at the end: libraries that count what is left of them would warn."""
    gc.unfreeze()
    if LENDER in config.stash:
        config.stash[LENDER].close()
        config.stash[COMPILED].done()
    if IN_MEMORY in config.stash:
        remove_folder(config.stash[IN_MEMORY])


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state folder of this run: tests see no broker of the user's, and are not remembered as experience."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("state-home")
        patch.setenv("STATEFLOW_HOME", str(folder))
        patch.delenv("STATEFLOW_UP", raising=False)
        yield folder


@pytest.fixture(scope="session", autouse=True)
def quick_java(request: pytest.FixtureRequest) -> Iterator[None]:
    """Java options, and class archives, for the brokers and the Spark sessions that tests start, and their scripts."""
    marks = {mark.name for item in request.session.items for mark in item.iter_markers()}
    with pytest.MonkeyPatch.context() as patch:

        def tell(variable: str, *arguments: str) -> None:
            patch.setenv(variable, " ".join([*arguments, os.environ.get(variable, "")]).strip())

        for variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
            tell(variable, SHORT_LIVED_JVM)
        try:
            if "spark" in marks:
                tell("SPARK_SUBMIT_OPTS", archive_arguments(make_archive(spark_program())))
            if marks & {"broker", "spark"}:
                tell(JVM_VARIABLE, archive_arguments(make_archive(broker_program())))
        except SetupError as error:  # what needs Java says so itself; other tests need none of this
            warnings.warn(f"Java starts without class archives: {error}", stacklevel=1)
        yield


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, quick_java: None) -> Iterator[RunBroker]:
    """One Kafka broker for all processes of the run; `.bootstrap` is its address.

    STATEFLOW_TEST_BROKER chooses another one: tests name their topics and groups uniquely instead of sharing them.
    """
    given = getattr(request.config, "workerinput", {})
    with open_broker(given.get("broker_lender")) as running:
        yield running
