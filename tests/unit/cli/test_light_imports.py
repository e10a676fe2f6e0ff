"""What a start loads: modules that take long to import, and are not needed by most of those who start us."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {
    *("pyspark", "confluent_kafka", "rocksdict", "fastavro", "numpy", "pandas", "pyarrow"),
    *("asyncio", "ssl", "_hashlib", "email", "http", "urllib.request", "importlib.metadata"),
    *("tomllib", "difflib", "sysconfig", "multiprocessing", "unittest"),
}
APPLICATION = {
    "stateflow.app",
    "stateflow.operators",
    "stateflow.store",
    "stateflow.runtime",
    "stateflow.codec",
}
LIBRARIES = {"msgspec", "dataclasses", "inspect", "logging", "json", "pathlib", "subprocess", "tempfile"}


def run_of(*arguments: str) -> str:
    return f"from stateflow.cli.main import run; run({list(arguments)!r})"


LOADS_NONE_OF: dict[str, tuple[str, set[str]]] = {
    "the package": ("import stateflow", {*HEAVY, *APPLICATION, *LIBRARIES, "click"}),
    "an application": ("import stateflow; stateflow.App('a')", {*HEAVY, "click", "stateflow.runtime"}),
    "--help": (run_of("--help"), {*HEAVY, *APPLICATION, "msgspec", "logging", "subprocess"}),
    "status": (run_of("status", "--help"), {*HEAVY, *APPLICATION}),
    "down": (run_of("down", "--help"), {*HEAVY, *APPLICATION} - {"_hashlib"}),
    "run": (
        run_of("run", "--help"),
        {"stateflow.compaction", "stateflow.spark", "pyspark", "asyncio", "ssl", "http"},
    ),
    "up": (run_of("up", "--help"), {*HEAVY, *APPLICATION} - {"_hashlib"}),
}


@pytest.mark.parametrize("what", LOADS_NONE_OF)
def test_a_start_loads_only_what_it_needs(what: str) -> None:
    code, none_of = LOADS_NONE_OF[what]
    told = (
        f"{code}\nimport sys; print(*sorted(set({sorted(none_of)!r}) & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []


def test_names_of_the_package_are_there_whoever_came_first() -> None:
    code = (
        "import stateflow.state.kinds, stateflow as sf; from stateflow import App;"
        "print(callable(sf.state), sf.App is App, 'sum' in dir(sf), sf.testing.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "True", "stateflow.testing"]
