"""The package: its folders, links, exports, entry point and locked dependencies."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from stateflow.cli.main import installed_version
from stateflow.errors import DISTRIBUTION, install_command

ROOT = Path(__file__).resolve().parents[3]
TOP_FOLDERS = ("cli", "compaction", "connectors")
LINKED_FOLDERS = (*TOP_FOLDERS, "lab")  # the laboratory is linked for checkouts and left out of the wheel


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def packages_on_disk() -> set[str]:
    """Every folder with modules, named as it is imported."""
    found = set()
    for top in ("stateflow", *TOP_FOLDERS):
        for init in (ROOT / top).rglob("__init__.py"):
            parts = init.parent.relative_to(ROOT).parts
            if parts[0] == "stateflow" and parts[1:2] and parts[1] in LINKED_FOLDERS:
                continue  # seen through a link
            found.add(".".join(parts if parts[0] == "stateflow" else ("stateflow", *parts)))
    return found


def test_the_written_packages_are_the_folders(project: dict[str, Any]) -> None:
    written = project["tool"]["setuptools"]["packages"]
    assert sorted(written) == written, "keep the list sorted"
    assert set(written) == packages_on_disk()


def test_every_folder_with_modules_is_a_package() -> None:
    for top in ("stateflow", *LINKED_FOLDERS):
        for module in (ROOT / top).rglob("*.py"):
            assert (module.parent / "__init__.py").exists(), module


def test_top_folders_are_mapped_and_linked(project: dict[str, Any]) -> None:
    mapping = project["tool"]["setuptools"]["package-dir"]
    assert mapping == {f"stateflow.{name}": name for name in TOP_FOLDERS}
    for name in LINKED_FOLDERS:
        link = ROOT / "stateflow" / name
        assert link.is_symlink()
        assert link.readlink() == Path("..") / name


def test_links_are_committed_as_links() -> None:
    names = [f"stateflow/{name}" for name in LINKED_FOLDERS]
    done = subprocess.run(
        ["git", "ls-files", "-s", *names], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["120000"] * len(LINKED_FOLDERS)


def test_package_data_exist(project: dict[str, Any]) -> None:
    for package, patterns in project["tool"]["setuptools"]["package-data"].items():
        folder = ROOT / "stateflow" / Path(*package.split(".")[1:])
        for pattern in patterns:
            assert list(folder.glob(pattern)), f"{package}: {pattern}"


def test_importing_stateflow_is_light() -> None:
    script = (
        "import sys, stateflow;"
        "print(*sorted({'pyspark', 'py4j', 'click', 'pandas', 'pyarrow', 'rocksdict'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"pyspark", "py4j", "click", "pandas"}, loaded


def test_exports_are_written_out_and_exist() -> None:
    for name in sorted(packages_on_disk()):
        module = importlib.import_module(name)
        exports = getattr(module, "__all__", [])
        assert len(set(exports)) == len(exports), name
        for export in exports:
            assert hasattr(module, export), f"{name}.{export}"
            assert not export.startswith("_"), f"{name}.{export}"


def test_no_star_imports() -> None:
    for top in ("stateflow", *LINKED_FOLDERS):
        for module in (ROOT / top).rglob("*.py"):
            assert not re.search(r"^from \S+ import \*", module.read_text(), re.MULTILINE), module


def test_the_stateflow_command_is_installed() -> None:
    (script,) = entry_points(group="console_scripts", name="stateflow")
    assert script.value == "stateflow.cli.entry:main"
    assert callable(script.load())


def test_the_distribution_is_named_in_one_place_and_nowhere_by_the_name_that_is_not_ours(
    project: dict[str, Any],
) -> None:
    assert project["project"]["name"] == DISTRIBUTION
    assert installed_version() == project["project"]["version"]
    assert install_command("spark", "broker") == f"pip install '{DISTRIBUTION}[spark,broker]'"
    known = set(project["project"]["optional-dependencies"])
    for file in hinting_files():
        text = file.read_text()
        assert not re.search(r"pip install (--\S+ )*'?stateflow(?!-kafka)\b", text), file
        assert not re.search(r"\bstateflow\[[a-z]+[,\]]", text), file
        for extras in re.findall(r"install_command\(([^)]*)\)", text):
            assert set(re.findall(r"""["']([a-z]+)["']""", extras)) <= known, file


def hinting_files() -> list[Path]:
    """What may tell somebody how to install: the source, the documents and the files of containers."""
    folders = ("stateflow", *LINKED_FOLDERS, "docs", "docker", "examples", "tools")
    found = [path for top in folders for path in (ROOT / top).rglob("*") if path.is_file()]
    text = [path for path in found if path.suffix in (".py", ".md", ".yml") or path.name == "Dockerfile"]
    return [
        *text,
        *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "dev.py", "docker-compose.yml")),
    ]


def test_the_lock_pins_every_dependency_with_hashes(project: dict[str, Any]) -> None:
    locks = ("requirements.lock", "native.lock", "installer.lock")
    text = "".join((ROOT / lock).read_text() for lock in locks)
    pinned = set(re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE))
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for extra in project["project"]["optional-dependencies"].values():
        wanted += extra
    names = {re.split(r"[<>=!~\[; ]", line)[0].lower().replace(".", "-").replace("_", "-") for line in wanted}
    assert names <= pinned
    blocks = re.split(r"\n(?=[a-z0-9-]+==)", text[text.index("\n") + 1 :])
    assert all("--hash=sha256:" in block for block in blocks)
    assert "://" not in text, "the lock names no address"
    assert "--index-url" not in text
