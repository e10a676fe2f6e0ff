"""Installs what requirements.lock says, then the checkout itself, into the environment of `dev.py`.

    python3 tools/packages.py ENVIRONMENT INSTALLER…    what installs packages, such as `python -m pip install`

pip takes three times as long as uv, most of it to pack pyspark's 450 MB of jars and to unpack them again: it comes
without a wheel. So pip fetches uv for the moment, pinned and hashed in installer.lock, and tells it where it gets its
own packages from. Where that cannot be done, or uv does not get there, pip does the work.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
SCRATCH = "installer-"
INSTALLER_LOCK = ROOT / "installer.lock"
EDITABLE = ("--config-settings", "editable_mode=compat")
"""A plain path entry, which type checkers follow: the default import hook hides the package from them."""
FOR_UV = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
"""pip's options and the variables by which uv is told the same."""
COMMAS = ("UV_FIND_LINKS",)
OF_NO_CONCERN = {
    "disable-pip-version-check", "no-input", "quiet", "verbose", "retries", "cache-dir", "no-cache-dir",
    "progress-bar", "root-user-action", "no-color", "break-system-packages", "require-virtualenv", "compile",
    "no-compile", "no-warn-script-location", "prefer-binary", "user", "log",
}  # fmt: skip
"""Options of pip that do not change what is installed, or from where."""
WHEELS_AS_THEY_ARE = "[bdist_wheel]\ncompression = stored\n"
"""For setuptools: a wheel that is unpacked at once, and thrown away, need not be compressed (17 CPU seconds)."""


def main(arguments: Sequence[str]) -> int:
    """Install; returns 0, or the installer's exit code."""
    environment, *installer = arguments
    python = Path(environment) / "bin" / "python"
    for left_over in Path(environment).glob(f"{SCRATCH}*"):
        shutil.rmtree(left_over)
    with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=environment) as folder:
        settings = Path(folder) / "setuptools.cfg"
        settings.write_text(WHEELS_AS_THEY_ARE)
        os.environ.setdefault("DIST_EXTRA_CONFIG", str(settings))
        if "pip" not in installer:  # it is uv already
            return _install(installer, {})
        told = for_uv(pip_options(installer))
        if told is not None and (uv := _fetched(installer, Path(folder))):
            quiet = [str(uv), "pip", "install", "--quiet", "--python", str(python)]
            variables = {"UV_CACHE_DIR": f"{folder}/cache", "UV_INDEX_STRATEGY": "unsafe-best-match", **told}
            if _install(quiet, {**variables, **os.environ}) == 0:
                return 0
            print("dev.py: uv could not install them, for the reason above; pip tries it", file=sys.stderr)
        return _install([*installer, "--no-compile"], {})  # what is imported is compiled then


def for_uv(options: Mapping[str, str]) -> dict[str, str] | None:
    """Variables that tell uv what pip is told by `options`; None if there is one that it could not be told."""
    told = {}
    for name, value in options.items():
        if name in OF_NO_CONCERN:
            continue
        if name not in FOR_UV:
            return None
        variable = FOR_UV[name]
        told[variable] = ("," if variable in COMMAS else " ").join(value.split())
    bundle = os.environ.get("REQUESTS_CA_BUNDLE")  # pip honours it, uv does not
    if bundle:
        told.setdefault("SSL_CERT_FILE", bundle)
    return told


def pip_options(installer: Sequence[str]) -> dict[str, str]:
    """Option → value, as pip has them from its files and variables for `pip install`."""
    command = [*installer[: installer.index("pip") + 1], "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}  # later ones win
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.rpartition(".")
        if section in found:
            found[section][option] = str(ast.literal_eval(value))
    return {option: value for options in found.values() for option, value in options.items()}


def _fetched(installer: Sequence[str], folder: Path) -> Path | None:
    """uv, fetched into the folder; None, and a word about it, if it cannot be had."""
    packages = ["--target", str(folder / "uv"), "--no-compile", "--no-deps", "--require-hashes"]
    command = [*installer, *packages, "-r", str(INSTALLER_LOCK)]
    variables = {**os.environ, "PIP_RETRIES": "1"}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    uv = folder / "uv" / "bin" / "uv"
    if done.returncode == 0 and uv.exists():
        return uv
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    print(f"dev.py: uv cannot be had ({lines[-1]}): pip takes its time instead", file=sys.stderr)
    return None


def _install(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Install the packages, then the checkout, whose build backend is among them."""
    packages = ["--require-hashes", "-r", str(LOCK)]
    checkout = ["--no-deps", "--no-build-isolation", *EDITABLE, "-e", str(ROOT)]
    environment = {**os.environ, **variables}
    for what in (packages, checkout):
        code = subprocess.call([*command, *what], cwd=ROOT, env=environment)
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
