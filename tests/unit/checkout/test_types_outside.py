"""A user's type checker sees the package's types, from an editable install and from a wheel."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "stateflow", "cli", "compaction", "connectors")
SCRIPT = """
from datetime import timedelta
import stateflow as sf
from stateflow.connectors.broker.service import BrokerPlan
from stateflow.testing import TestDriver

app = sf.App("x")
counts = app.topic("counts", key=str, value=int)
stream = app.stream(counts)
reveal_type(sf.App("x"))
reveal_type(counts)
reveal_type(stream)
reveal_type(app.options.partitions)
reveal_type(BrokerPlan().port)
reveal_type(TestDriver)
reveal_type(stream.window(sf.Hopping(timedelta(2), timedelta(1))).count(name="a"))
reveal_type(stream.window(sf.Session(timedelta(1))).reduce(max, name="b"))
reveal_type(stream.window(sf.CountWindow(3)).count(name="c"))
reveal_type(stream.window(sf.Sliding(timedelta(1))).late())
reveal_type(TestDriver(app).rows(counts)[0].key)
app.topic(5)
stream.window(5)
stream.window(sf.CountWindow(3), late=sf.Skip())
stream.window(sf.CountWindow(3)).late()
"""
REVEALED = (
    "stateflow.app.App",
    "stateflow.operators.topics.topic_options.Topic[str, int]",
    "stateflow.operators.dsl.stream.Stream[str, int]",
    "int",
    "int",
    "def (app: stateflow.app.App",
    "stateflow.operators.dsl.stream.Stream[tuple[str, int, int, fallback=stateflow.codec.windowed.Windowed[str]], int]",
    "stateflow.operators.dsl.stream.Stream[tuple[str, int, int, fallback=stateflow.codec.windowed.Windowed[str]], int]",
    "stateflow.operators.dsl.stream.Stream[tuple[str, int, int, fallback=stateflow.codec.windowed.Counted[str]], int]",
    "stateflow.operators.dsl.stream.Stream[str, int]",
    "str",
)
pytestmark = pytest.mark.slow


def test_the_script_is_typed_by_the_install_of_this_environment(tmp_path: Path) -> None:
    """The one that `dev.py` made: an entry of a path in site-packages."""
    check_types(tmp_path, Path(sys.executable))


def test_the_script_is_typed_by_a_wheel(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    (site,) = environment.glob("lib/python*/site-packages")
    with zipfile.ZipFile(built_wheel(tmp_path)) as wheel:
        wheel.extractall(site)
    check_types(tmp_path, environment / "bin" / "python")


def test_the_editable_install_of_the_script_is_a_path_entry() -> None:
    """What a type checker can follow; an import hook it cannot."""
    spec = importlib.util.spec_from_file_location("packages", ROOT / "tools" / "packages.py")
    assert spec is not None
    assert spec.loader is not None
    packages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(packages)
    assert packages.EDITABLE == ("--config-settings", "editable_mode=compat")


def check_types(folder: Path, python: Path) -> None:
    """Check the script with mypy in a folder of its own, as a user would who has only installed the package."""
    outside = folder / "outside"
    outside.mkdir()
    (outside / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--output=json"]
    command += ["--python-executable", str(python), "--cache-dir", str(folder / "cache"), "script.py"]
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    done = subprocess.run(
        command, cwd=outside, env=variables, capture_output=True, text=True, timeout=240, check=False
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert told, done.stderr
    shown = [row["message"].partition('"')[2] for row in told if row["code"] == "misc" or row["code"] is None]
    for row, wanted in zip(shown, REVEALED, strict=True):
        assert row.startswith(wanted), done.stdout
    errors = [row for row in told if row["severity"] == "error"]
    refused = ["call-overload", "call-overload", "call-overload", "attr-defined"]
    assert [row["code"] for row in errors] == refused, done.stdout


def built_wheel(folder: Path) -> Path:
    """A wheel of a copy of the checkout, so that nothing is written into it."""
    copy, out = folder / "copy", folder / "wheels"
    copy.mkdir()
    out.mkdir()
    for name in BUILT_FROM:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    code = f"from setuptools import build_meta; build_meta.build_wheel({str(out)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=copy, capture_output=True, check=True, timeout=120)
    (wheel,) = out.glob("*.whl")
    name = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]
    assert wheel.name.startswith(name.replace("-", "_"))
    return wheel
