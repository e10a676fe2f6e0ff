"""Wheels with the native core inside: where they say that they run, and that what they hold is what they list."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.util
import platform
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

import pytest

from stateflow.native.building import GLIBC, library_path

ROOT = Path(__file__).resolve().parents[3]
PLAIN = "stateflow_kafka-1.2-py3-none-any.whl"
INFO = "stateflow_kafka-1.2.dist-info"
X86 = "x86_64-linux-gnu.2.17"


@pytest.fixture(scope="module")
def backend() -> ModuleType:
    spec = importlib.util.spec_from_file_location("wheel_backend", ROOT / "tools" / "wheel_backend.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A wheel for any machine, with the native package alone."""
    with ZipFile(tmp_path / PLAIN, "w") as wheel:
        wheel.writestr(f"{INFO}/METADATA", "Metadata-Version: 2.1\nName: stateflow-kafka\nVersion: 1.2\n")
        wheel.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n\n")
        wheel.writestr(f"{INFO}/RECORD", "")
        for module in ("native/__init__.py", "native/building.py"):
            wheel.write(ROOT / "stateflow" / module, f"stateflow/{module}")
        for source in (ROOT / "stateflow" / "native" / "source").iterdir():
            wheel.write(source, f"stateflow/native/source/{source.name}")
    return tmp_path / PLAIN


def test_a_wheel_holds_what_it_lists_and_says_where_it_runs(
    backend: ModuleType, plain: Path, tmp_path: Path
) -> None:
    library = tmp_path / "core-1-linux-x86_64.so"
    library.write_bytes(b"\x7fELF GLIBC_2.2.5 GLIBC_2.14")
    made = backend.with_library(plain, library, X86)
    assert made.name == "stateflow_kafka-1.2-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    with ZipFile(made) as wheel:
        listed = {
            name: told for name, told, _ in csv.reader(wheel.read(f"{INFO}/RECORD").decode().splitlines())
        }
        assert set(listed) == set(wheel.namelist())
        for name in wheel.namelist():
            digest = base64.urlsafe_b64encode(hashlib.sha256(wheel.read(name)).digest()).decode().rstrip("=")
            assert listed[name] == ("" if name.endswith("RECORD") else f"sha256={digest}")
        told = wheel.read(f"{INFO}/WHEEL").decode().splitlines()
        assert wheel.read("stateflow/native/lib/core-1-linux-x86_64.so") == library.read_bytes()
    assert "Root-Is-Purelib: false" in told
    assert [line for line in told if line.startswith("Tag:")] == [
        "Tag: py3-none-manylinux_2_17_x86_64",
        "Tag: py3-none-manylinux2014_x86_64",
    ]


@pytest.mark.skipif(not library_path().exists(), reason="the native core is not built")
def test_the_library_is_found_where_the_wheel_puts_it(
    backend: ModuleType, plain: Path, tmp_path: Path
) -> None:
    made = backend.with_library(plain, library_path(), f"{platform.machine()}-linux-gnu.2.99")
    with ZipFile(made) as wheel:
        wheel.extractall(tmp_path / "site")
    script = "from stateflow.native.building import library_path; print(library_path().exists())"
    unpacked = {"PYTHONPATH": str(tmp_path / "site"), "PYTHONDONTWRITEBYTECODE": "1"}
    (tmp_path / "site" / "stateflow" / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-c", script], env=unpacked, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "True"


def test_a_library_that_needs_more_than_its_target_has_is_refused(backend: ModuleType) -> None:
    assert backend.tags_of("aarch64-linux-gnu.2.28", b"GLIBC_2.28") == ["py3-none-manylinux_2_28_aarch64"]
    with pytest.raises(backend.Unbuildable, match=r"needs glibc 2\.28"):
        backend.tags_of(X86, b"GLIBC_2.2.5 GLIBC_2.28")
    for target in ("x86_64", "x86_64-linux-musl", "riscv64-linux-gnu.2.40"):
        with pytest.raises(backend.Unbuildable, match="is no target"):
            backend.tags_of(target, b"")


def test_which_wheel_is_built(backend: ModuleType) -> None:
    assert backend.target_of({"target": "none"}) == ""
    assert backend.target_of({"target": "aarch64-linux-gnu.2.17"}) == "aarch64-linux-gnu.2.17"
    if sys.platform == "linux" and platform.machine() in backend.MACHINES:
        assert backend.target_of(None) == f"{platform.machine()}-linux-gnu.{GLIBC}"
