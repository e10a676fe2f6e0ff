"""Writes requirements.lock: the packages of all extras, pinned, with the SHA-256 of every platform's files.

Run by `python3 dev.py lock`. The resolver is uv, in a throw-away environment; its answer holds for every
supported Python and platform (environment markers), and names no index. The build backend is locked too, so
that an editable install needs nothing that is not in the file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESOLVER = "uv==0.13.8"
HEADER = "# Written by `python3 dev.py lock` from pyproject.toml; do not edit.\n"


def main() -> int:
    """Resolve pyproject.toml and replace the lock; `--upgrade` takes the newest versions."""
    lock = ROOT / "requirements.lock"
    with tempfile.TemporaryDirectory() as scratch:
        uv = _install_resolver(Path(scratch) / "venv")
        build = Path(scratch) / "build.in"
        build.write_text("\n".join(_build_requirements()) + "\n")
        draft = Path(scratch) / "requirements.lock"
        if lock.exists():
            draft.write_text(lock.read_text())  # the resolver keeps the pins that it finds there
        command = [str(uv), "pip", "compile", "--universal", "--generate-hashes", "--all-extras", "--quiet"]
        command += ["--no-header", "--no-emit-index-url", "--python-version", "3.11", *sys.argv[1:]]
        command += ["--output-file", str(draft), str(ROOT / "pyproject.toml"), str(build)]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            return done.returncode
        text = HEADER + draft.read_text().replace(str(build), "build backend")
    assert "://" not in text, "the lock must not name an address"
    partial = lock.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(lock)
    print(f"{lock.name}: {text.count('==')} pins, {text.count('--hash=')} hashes")
    return 0


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
    requirements: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    return requirements


if __name__ == "__main__":
    sys.exit(main())
