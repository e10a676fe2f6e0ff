"""dev.py, the script that needs nothing installed."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOISY_TEST = """
import atexit, sys
atexit.register(lambda: print("a child process says goodbye", file=sys.stderr))
def test_something():
    assert {outcome}
"""


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


def test_help_names_every_command(dev: ModuleType) -> None:
    shown = run("--help")
    assert shown.returncode == 0
    for command in dev.COMMANDS:
        assert f"dev.py {command}" in shown.stdout


def test_an_unknown_command_is_2() -> None:
    assert run("frobnicate").returncode == 2


@pytest.mark.parametrize(("outcome", "code", "closing"), [("True", 0, "1 passed"), ("False", 1, "1 failed")])
def test_pytests_closing_line_is_the_last(
    dev: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    outcome: str, code: int, closing: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(dev, "PYTHON", Path(sys.executable))
    (tmp_path / "test_noisy.py").write_text(NOISY_TEST.format(outcome=outcome))
    assert dev._run_pytest(["-p", "no:cacheprovider", str(tmp_path)], []) == code
    lines = [line for line in capfd.readouterr().out.splitlines() if line.strip()]
    assert "a child process says goodbye" in lines
    assert closing in lines[-1]
    assert " in " in lines[-1]


def test_a_failed_check_is_told_and_fails_the_whole(
    dev: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev, "PYTHON", Path(sys.executable))
    (tmp_path / "test_quiet.py").write_text("def test_something():\n    assert True\n")
    assert dev._run_pytest(["-q", "-p", "no:cacheprovider", str(tmp_path)], ["lint"]) == 1
    lines = [line for line in capfd.readouterr().out.splitlines() if line.strip()]
    assert lines[-2] == "dev.py: failed before the tests: lint"
    assert "1 passed in" in lines[-1]


def test_a_failing_check_shows_its_output(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dev, "BIN", Path(sys.executable).parent)
    script = "import sys; print('the reason'); sys.exit(3)"
    monkeypatch.setattr(dev, "CHECKS", (("good", ("python", "-c", "")), ("bad", ("python", "-c", script))))
    assert dev._run_checks() == ["bad"]
    shown = capfd.readouterr().out
    assert "good: ok" in shown
    assert "the reason" in shown


def test_the_stamp_follows_the_lock(dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dev._fingerprint()
    changed = tmp_path / "requirements.lock"
    changed.write_text(dev.LOCK.read_text() + "# another\n")
    monkeypatch.setattr(dev, "LOCK", changed)
    assert dev._fingerprint() != before


def test_ci_calls_the_same_command() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "dev.py test" in script.read_text()
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
