"""Writes requirements.lock: the packages of the extras, pinned, with the SHA-256 of every platform's files.

The compiler of the extra `native` has a lock of its own, native.lock: only who has no other fetches its 90 MB.
So has the installer, installer.lock: it is fetched before anything else.

Run by `python3 dev.py lock`. The resolver is uv, in a throw-away environment; its answer holds for every
supported Python and platform (environment markers), and names no index. The build backend is locked too, so
that an editable install needs nothing that is not in the file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESOLVER = "uv==0.13.8"
"""Resolves; and installs, too: see tools/packages.py."""
COMPILER_EXTRA = "native"
SOURCES = {"build": "build backend", "native": "compiler of the native core", "installer": "tools/lock.py"}
HEADER = "# Written by `python3 dev.py lock` from pyproject.toml; do not edit.\n"


def main() -> int:
    """Resolve pyproject.toml and replace the locks; `--upgrade` takes the newest versions."""
    with tempfile.TemporaryDirectory() as scratch:
        uv = _install_resolver(Path(scratch) / "venv")
        extras = _project()["optional-dependencies"]
        chosen = [f"--extra={name}" for name in extras if name != COMPILER_EXTRA]
        build = _written(Path(scratch) / "build.in", _build_requirements())
        compiler = _written(Path(scratch) / "native.in", extras[COMPILER_EXTRA])
        installer = _written(Path(scratch) / "installer.in", [RESOLVER])
        made = [
            _lock(uv, ROOT / "requirements.lock", [*chosen, str(ROOT / "pyproject.toml"), build]),
            _lock(uv, ROOT / "native.lock", [compiler]),
            _lock(uv, ROOT / "installer.lock", [installer]),
        ]
    return max(made)


def _lock(uv: Path, lock: Path, wanted: list[str]) -> int:
    """Resolve into one lock; returns the resolver's exit code."""
    with tempfile.TemporaryDirectory() as scratch:
        draft = Path(scratch) / lock.name
        if lock.exists():
            draft.write_text(lock.read_text())  # the resolver keeps the pins that it finds there
        command = [str(uv), "pip", "compile", "--universal", "--generate-hashes", "--quiet", "--no-header"]
        command += ["--no-emit-index-url", "--python-version", "3.11", *sys.argv[1:]]
        command += ["--output-file", str(draft), *wanted]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            return done.returncode
        text = HEADER + re.sub(
            r"\S+/(build|native|installer)\.in", lambda found: SOURCES[found[1]], draft.read_text()
        )
    assert "://" not in text, "the lock must not name an address"
    partial = lock.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(lock)
    print(f"{lock.name}: {text.count('==')} pins, {text.count('--hash=')} hashes")
    return 0


def _written(file: Path, requirements: list[str]) -> str:
    file.write_text("\n".join(requirements) + "\n")
    return str(file)


def _install_resolver(folder: Path) -> Path:
    venv.create(folder, with_pip=False)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(folder / "bin" / "python"),
        "install",
        "--quiet",
        RESOLVER,
    ]
    subprocess.run(pip, check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    return folder / "bin" / "uv"


def _build_requirements() -> list[str]:
    requirements: list[str] = _pyproject()["build-system"]["requires"]
    return requirements


def _project() -> dict[str, Any]:
    project: dict[str, Any] = _pyproject()["project"]
    return project


def _pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


if __name__ == "__main__":
    sys.exit(main())
