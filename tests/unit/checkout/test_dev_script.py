"""dev.py, the script that needs nothing installed."""

from __future__ import annotations

import ast
import importlib.util
import io
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
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


@pytest.fixture
def here(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, using this environment, with checks that pass at once."""
    monkeypatch.setattr(dev, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(dev, "BIN", Path(sys.executable).parent)
    monkeypatch.setattr(dev, "CHECKS", (("good", ("python", "-c", "")),))
    return dev


def started(dev: ModuleType) -> object:
    """The checks, begun as `dev.py test` begins them."""
    checks = dev._Checks(lambda text: print(text, flush=True))
    checks.start()
    return checks


def shown_lines(capfd: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capfd.readouterr().out.splitlines() if line.strip()]


@pytest.mark.parametrize(("outcome", "code", "closing"), [("True", 0, "1 passed"), ("False", 1, "1 failed")])
def test_pytests_closing_line_is_the_last(
    here: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    outcome: str, code: int, closing: str,
) -> None:  # fmt: skip
    (tmp_path / "test_noisy.py").write_text(NOISY_TEST.format(outcome=outcome))
    assert (
        here._run_side_by_side(["-p", "no:cacheprovider", str(tmp_path)], ["a note"], started(here)) == code
    )
    lines = shown_lines(capfd)
    assert "a child process says goodbye" in lines
    assert lines[-2] == "a note"
    assert closing in lines[-1]
    assert " in " in lines[-1]


def test_a_failed_check_shows_its_output_and_fails_the_whole(
    here: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "import sys; print('the reason'); sys.exit(3)"
    monkeypatch.setattr(here, "CHECKS", (*here.CHECKS, ("bad", ("python", "-c", script))))
    (tmp_path / "test_quiet.py").write_text("def test_something():\n    assert True\n")
    assert here._run_side_by_side(["-q", "-p", "no:cacheprovider", str(tmp_path)], [], started(here)) == 1
    lines = shown_lines(capfd)
    assert any(line.startswith("good: ok") for line in lines)
    assert lines[lines.index("the reason") - 1].startswith("bad: FAILED")
    assert lines[-2] == "dev.py: checks that failed: bad"
    assert "1 passed in" in lines[-1]


def test_checks_go_on_after_one_that_fails(here: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = ("bad", ("python", "-c", "raise SystemExit(1)"))
    monkeypatch.setattr(here, "CHECKS", (bad, *here.CHECKS))
    said: list[str] = []
    checks = here._Checks(said.append)
    checks.run()
    assert checks.failed == ["bad"]
    assert said[-1].startswith("good: ok")


def test_a_check_that_cannot_begin_has_failed(here: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "CHECKS", (("absent", ("no-such-program",)),))
    checks = here._Checks(print)
    with pytest.raises(FileNotFoundError):
        checks.run()
    assert checks.failed == ["absent"]


def test_stopped_checks_end_at_once(here: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = "import sys; print(sys.stdin.read()); import signal; signal.pause()"
    monkeypatch.setattr(here, "CHECKS", (("long", ("python", "-c", waiting)), *here.CHECKS))
    said: list[str] = []
    checks = here._Checks(said.append)
    checks.start()
    wait_until(lambda: checks._running is not None, "the check to start")
    checks.stop()
    checks.join(timeout=60)
    assert not checks.is_alive()
    assert said == []


class Program:
    """A program whose output the test writes."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self.stdout = stream


def test_lines_of_our_own_come_between_those_of_the_program(
    dev: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as stream:
        lines = dev._Echo(Program(stream))
        os.write(writing, b"..")
        wait_until(lambda: lines._part == b"..", "the dots")
        lines.say("lint: ok")
        os.write(writing, b"..\n1 passed in 1.0s")
        os.close(writing)
        lines.finish()
        lines.repeat_closing_line()
    assert capfd.readouterr().out == "....\nlint: ok\n1 passed in 1.0s\n"


@pytest.mark.slow
def test_processes_that_share_the_tests_tell_one_sum(
    here: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("xdist")
    for number in range(3):
        (tmp_path / f"test_{number}.py").write_text("def test_something():\n    assert True\n")
    arguments = [*here.LANES, "-n", "2", "-p", "no:cacheprovider", str(tmp_path)]
    assert here._run_side_by_side(arguments, [], started(here)) == 0
    assert "3 passed in" in shown_lines(capfd)[-1]


def test_fast_leaves_out_what_it_says(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[list[str], list[str]]] = []
    monkeypatch.setattr(dev, "ensure_environment", lambda: 0)

    def noted(arguments: list[str], notes: list[str], checks: object) -> int:
        calls.append((arguments, notes))
        return 0

    monkeypatch.setattr(dev, "_run_side_by_side", noted)
    monkeypatch.setattr(dev, "CHECKS", ())
    assert dev.main(["test", "--fast", "-k", "some"]) == 0
    ((arguments, notes),) = calls
    assert arguments == [*dev.LANES, *dev.FAST, "-k", "some"]
    for mark in ("broker", "spark", "slow"):
        assert f"not {mark}" in arguments[arguments.index("-m") + 1]
        assert mark in notes[0]


@pytest.mark.parametrize("fast", [False, True])
def test_class_archives_are_there_before_the_tests_that_want_them(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, fast: bool
) -> None:
    calls: list[object] = []
    monkeypatch.setattr(dev, "ensure_environment", lambda: 0)
    monkeypatch.setattr(dev, "CHECKS", ())

    def noted(call: object) -> int:
        calls.append(call)
        return 0

    monkeypatch.setattr(dev, "_call", noted)
    monkeypatch.setattr(dev, "_run_side_by_side", lambda *_: noted("tests"))
    assert dev.main(["test", *(["--fast"] if fast else [])]) == 0
    assert calls == [*([] if fast else [dev.FETCH_JARS, dev.MAKE_CLASS_ARCHIVES]), "tests"]


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


def test_checks_begin_while_jars_are_fetched(
    here: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = tmp_path / "checked"
    check = ("python", "-c", f"open({str(done)!r}, 'w').close()")
    waiting = (
        f"import os, time\nwhile not os.path.exists({str(done)!r}): time.sleep(0.01)\nraise SystemExit(7)"
    )
    monkeypatch.setattr(here, "ensure_environment", lambda: 0)
    monkeypatch.setattr(here, "CHECKS", (("early", check),))
    monkeypatch.setattr(here, "FETCH_JARS", [sys.executable, "-c", waiting])
    assert here.main(["test"]) == 7


def test_ci_calls_the_same_command() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "dev.py test" in script.read_text()
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
