"""dev.py, the script that needs nothing installed."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def dev() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dev", ROOT / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(ROOT / "dev.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_only_the_standard_library_is_imported() -> None:
    tree = ast.parse((ROOT / "dev.py").read_text())
    names = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    names |= {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names <= set(sys.stdlib_module_names)


def test_what_it_starts_keeps_compiled_modules(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "PYTHONPATH"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PYTHONUTF8", "1")
    handed_on = dev._environment()
    assert not {"PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "PYTHONPATH"} & handed_on.keys()
    assert handed_on["PYTHONUTF8"] == "1"


def test_a_warm_start_imports_no_more_than_it_needs() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import dev; dev._fingerprint();"
    code += "print(*sorted({'venv', 'email', 'importlib.metadata', 'logging'} & set(sys.modules)))"
    started = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert started.stdout.split() == []


def test_help_names_every_command(dev: ModuleType) -> None:
    shown = run("--help")
    assert shown.returncode == 0
    for command in dev.COMMANDS:
        assert f"dev.py {command}" in shown.stdout


def test_an_unknown_command_is_2() -> None:
    assert run("frobnicate").returncode == 2


def test_the_stamp_follows_the_lock(dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dev._fingerprint()
    changed = tmp_path / "requirements.lock"
    changed.write_text(dev.LOCK.read_text() + "# another\n")
    monkeypatch.setattr(dev, "LOCK", changed)
    assert dev._fingerprint() != before


def test_an_installation_under_the_former_name_is_removed(
    dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev, "ROOT", tmp_path)
    monkeypatch.setattr(dev, "VENV", tmp_path / ".venv")
    site = tmp_path / ".venv" / "lib" / "python3.11" / "site-packages"
    former, present = site / "stateflow-0.1.0.dist-info", site / "stateflow_kafka-0.1.0.dist-info"
    command, entry = tmp_path / ".venv" / "bin" / "stateflow", site / "__editable__.stateflow-0.1.0.pth"
    egg = tmp_path / "stateflow.egg-info" / "entry_points.txt"
    for file in (former / "METADATA", present / "METADATA", command, entry, egg):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    (former / "RECORD").write_text(f"../../../bin/stateflow,,\n{entry.name},,\n")
    dev._remove_former()
    assert not any(path.exists() for path in (former, command, entry, egg.parent))
    assert present.exists()


def test_ci_calls_the_same_command() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "dev.py test" in script.read_text()
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
