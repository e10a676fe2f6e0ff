"""Builds the package: setuptools' own backend, and wheels that have the native core inside.

    pip wheel . --no-deps                                                   for this machine
    pip wheel . --no-deps --config-settings target=aarch64-linux-gnu.2.17   for another one
    pip wheel . --no-deps --config-settings target=none                     for any machine, without the core

The core is built by `ziglang`, which is fetched for the moment: no compiler is needed. One wheel serves every CPython
from 3.11 on, as the core needs the interpreter's stable functions only. Where the core cannot be had (another system
than Linux, another processor) the wheel is the one for any machine.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

MACHINES = ("x86_64", "aarch64")
COMPILER = "ziglang>=0.17"
_BUILDING = Path(__file__).resolve().parent.parent / "stateflow" / "native" / "building.py"
_GLIBC_OF_TARGET = re.compile(r"-linux-gnu\.(\d+)\.(\d+)$")
_GLIBC_NEEDED = re.compile(rb"GLIBC_(\d+)\.(\d+)")

Settings = Mapping[str, Any] | None


class Unbuildable(Exception):
    """The wheel cannot be built as it was asked for."""


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """What setuptools needs, and the compiler where the core is to be inside."""
    needed = list(build_meta.get_requires_for_build_wheel(config_settings))
    return [*needed, COMPILER] if target_of(config_settings) else needed


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Build a wheel, and return its name; see the module. Raises ``Unbuildable``."""
    target = target_of(config_settings)
    name = str(build_meta.build_wheel(wheel_directory, None, metadata_directory))
    if not target:
        return name
    building, plain = _building(), Path(wheel_directory) / name
    with TemporaryDirectory(prefix="stateflow-core-") as folder:
        # The checkout's own may be of this machine's compiler, for this machine alone.
        vars(building)["LIBRARIES"] = Path(folder)
        try:
            library = building.build(target)
        except building.NotBuilt as error:
            raise Unbuildable(
                f"{error}; --config-settings target=none leaves the native core out."
            ) from error
        made = with_library(plain, library, target)
    plain.unlink()
    return made.name


def target_of(config_settings: Settings) -> str:
    """The target that was asked for, or that of this machine; empty for a wheel without the core."""
    asked = str((config_settings or {}).get("target", ""))
    if asked:
        return "" if asked == "none" else asked
    machine = platform.machine()
    has_core = sys.platform == "linux" and machine in MACHINES and platform.libc_ver()[0] == "glibc"
    return f"{machine}-linux-gnu.{_building().GLIBC}" if has_core else ""


def tags_of(target: str, library: bytes) -> list[str]:
    """Where a library runs, as wheels say it. Raises ``Unbuildable`` when it needs a newer glibc than its target's."""
    machine, found = target.split("-")[0], _GLIBC_OF_TARGET.search(target)
    if found is None or machine not in MACHINES:
        raise Unbuildable(f"{target!r} is no target such as x86_64-linux-gnu.2.17")
    wanted = (int(found[1]), int(found[2]))
    needed = max(
        ((int(major), int(minor)) for major, minor in _GLIBC_NEEDED.findall(library)), default=(2, 0)
    )
    if needed > wanted:
        raise Unbuildable(f"the library needs glibc {needed[0]}.{needed[1]}, and the target has {found[0]}")
    former = [f"py3-none-manylinux2014_{machine}"] if wanted == (2, 17) else []
    return [f"py3-none-manylinux_{wanted[0]}_{wanted[1]}_{machine}", *former]


def with_library(plain: Path, library: Path, target: str) -> Path:
    """A copy of a wheel for any machine, beside it, that has the library inside and says where it runs."""
    content = library.read_bytes()
    tags = tags_of(target, content)
    distribution, version = plain.name.split("-")[:2]
    platforms = ".".join(tag.removeprefix("py3-none-") for tag in tags)
    made = plain.with_name(f"{distribution}-{version}-py3-none-{platforms}.whl")
    info = f"{distribution}-{version}.dist-info"
    with ZipFile(plain) as before, ZipFile(made, "w", ZIP_DEFLATED) as after:
        files = {entry.filename: before.read(entry) for entry in before.infolist()}
        del files[f"{info}/RECORD"]
        files[f"{info}/WHEEL"] = _described(files[f"{info}/WHEEL"].decode(), tags).encode()
        files[f"stateflow/native/lib/{library.name}"] = content
        for name, data in files.items():
            after.writestr(name, data)
        record = [f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items()]
        after.writestr(f"{info}/RECORD", "".join([*record, f"{info}/RECORD,,\n"]))
    return made


def _described(wheel: str, tags: list[str]) -> str:
    lines = [
        line for line in wheel.splitlines() if line and not line.startswith(("Tag:", "Root-Is-Purelib:"))
    ]
    return "\n".join([*lines, "Root-Is-Purelib: false", *(f"Tag: {tag}" for tag in tags), ""])


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _building() -> ModuleType:
    """The module that builds the core: of these sources, whatever is installed."""
    spec = importlib.util.spec_from_file_location("stateflow_native_building", _BUILDING)
    assert spec is not None, "the file is there"
    assert spec.loader is not None, "and is Python"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
