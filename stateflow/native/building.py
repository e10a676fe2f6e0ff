"""Building the native core from its sources, with the standard library only: `dev.py` runs this file.

    python -m stateflow.native            build for this machine, if it is not built already
    python -m stateflow.native TARGET     build for `x86_64-linux-gnu.2.17`, or another target of zig's

The library's name has a hash of the sources: one of other sources is never loaded. The compiler is the `ziglang`
package where it can be imported (it builds for every target), else `cc`, `gcc` or `clang` of this machine.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SOURCE = FOLDER / "source"
LIBRARIES = FOLDER / "lib"
FLAGS = ("-std=c11", "-O3", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")
GLIBC = "2.17"
"""The oldest one that a library of ours loads with: that of manylinux2014."""
_BUILD_SECONDS_MAX = 300.0


class NotBuilt(Exception):
    """There is no library, and why."""


def sources() -> list[Path]:
    """The files of which a library is made."""
    return sorted(path for path in SOURCE.iterdir() if path.suffix in (".c", ".h"))


def fingerprint() -> str:
    """A short hash of the sources and of how they are built."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for path in sources():
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def library_path(machine: str = "") -> Path:
    """Where the library for a machine is, built or not; by default for this one."""
    return LIBRARIES / f"core-{fingerprint()}-{sys.platform}-{machine or platform.machine()}.so"


def compiler(target: str = "") -> list[str]:
    """The command that compiles for a target, by default for this machine. Raises ``NotBuilt`` when there is none."""
    if importlib.util.find_spec("ziglang"):
        machine = platform.machine()
        wanted = target or f"{machine}-linux-gnu.{GLIBC}" if sys.platform == "linux" else target
        return [sys.executable, "-m", "ziglang", "cc", *(["-target", wanted] if wanted else [])]
    for name in () if target else ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return [found]
    raise NotBuilt("there is no C compiler, and the package ziglang is not installed")


def build(target: str = "") -> Path:
    """Build the library if it is not there, and remove those of other sources. Raises ``NotBuilt``."""
    path = library_path(target.split("-")[0])
    if path.exists():
        return path
    LIBRARIES.mkdir(exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    command = [*compiler(target), *FLAGS, *(str(file) for file in sources() if file.suffix == ".c")]
    try:
        with tempfile.TemporaryDirectory(prefix="stateflow-native-") as scratch:
            subprocess.run(
                [*command, "-o", str(partial)],
                check=True,
                capture_output=True,
                text=True,
                timeout=_BUILD_SECONDS_MAX,
                env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": scratch, "ZIG_LOCAL_CACHE_DIR": scratch},
            )
        partial.replace(path)  # whole or not at all: others may be loading it
    except (OSError, subprocess.SubprocessError) as error:
        output = str(getattr(error, "stderr", None) or "").strip().splitlines()
        raise NotBuilt(f"{error}{': ' + output[-1] if output else ''}") from error
    finally:
        partial.unlink(missing_ok=True)
    for other in LIBRARIES.glob("core-*.so"):
        if not other.name.startswith(f"core-{fingerprint()}-"):
            other.unlink(missing_ok=True)
    return path


def main() -> None:
    """Build, and say where the library is; exit code 1 and why, if there is none."""
    try:
        print(build(*sys.argv[1:2]))
    except NotBuilt as error:
        sys.exit(f"the native core is not built: {error}")


if __name__ == "__main__":
    main()
