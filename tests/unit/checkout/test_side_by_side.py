"""What `dev.py test` does beside pytest: checks, jars, class archives; and the closing line."""

from __future__ import annotations

import importlib.util
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from tests.prepared import VARIABLE, Preparation
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
NOISY_TEST = """
import atexit, sys
atexit.register(lambda: print("a child process says goodbye", file=sys.stderr))
def test_something():
    assert {outcome}
"""
QUIET_TEST = "def test_something():\n    assert True\n"
NO_CACHE = ("-p", "no:cacheprovider")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with checks that pass at once."""
    spec = importlib.util.spec_from_file_location("side_by_side", ROOT / "tools" / "side_by_side.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "CHECKS", (("good", ("python", "-c", "")),))
    return module


def program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def shown_lines(capfd: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capfd.readouterr().out.splitlines() if line.strip()]


@pytest.mark.parametrize(("outcome", "code", "closing"), [("True", 0, "1 passed"), ("False", 1, "1 failed")])
def test_pytests_closing_line_is_the_last(
    here: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    outcome: str, code: int, closing: str,
) -> None:  # fmt: skip
    (tmp_path / "test_noisy.py").write_text(NOISY_TEST.format(outcome=outcome))
    assert here.run_tests([*NO_CACHE, str(tmp_path)], ["a note"], ()) == code
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
    (tmp_path / "test_quiet.py").write_text(QUIET_TEST)
    assert here.run_tests(["-q", *NO_CACHE, str(tmp_path)], [], ()) == 1
    lines = shown_lines(capfd)
    assert any(line.startswith("good: ok") for line in lines)
    assert lines[lines.index("the reason") - 1].startswith("bad: FAILED")
    assert lines[-2] == "dev.py: checks that failed: bad"
    assert "1 passed in" in lines[-1]


def test_checks_go_on_after_one_that_fails(here: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = ("bad", ("python", "-c", "raise SystemExit(1)"))
    monkeypatch.setattr(here, "CHECKS", (bad, *here.CHECKS))
    said: list[str] = []
    checks = here.Checks(said.append)
    checks.run()
    assert checks.failed == ["bad"]
    assert said[-1].startswith("good: ok")


def test_a_check_that_cannot_begin_has_failed(here: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "CHECKS", (("absent", ("no-such-program",)),))
    checks = here.Checks(print)
    with pytest.raises(FileNotFoundError):
        checks.run()
    assert checks.failed == ["absent"]


def test_stopped_checks_end_at_once(here: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = "import sys; print(sys.stdin.read()); import signal; signal.pause()"
    monkeypatch.setattr(here, "CHECKS", (("long", ("python", "-c", waiting)), *here.CHECKS))
    said: list[str] = []
    checks = here.Checks(said.append)
    checks.start()
    wait_until(lambda: checks.running is not None, "the check to start")
    checks.stop()
    checks.join(timeout=60)
    assert not checks.is_alive()
    assert said == []


class Program:
    """A program whose output the test writes."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self.stdout = stream


def test_lines_of_our_own_come_between_those_of_the_program(
    here: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as stream:
        lines = here.Echo(Program(stream))
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
        (tmp_path / f"test_{number}.py").write_text(QUIET_TEST)
    assert here.run_tests([*here.LANES, "-n", "2", *NO_CACHE, str(tmp_path)], [], ()) == 0
    assert "3 passed in" in shown_lines(capfd)[-1]


def test_fast_leaves_out_what_it_says(here: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Sequence[str], Sequence[str], Sequence[Sequence[Sequence[str]]]]] = []

    def noted(
        arguments: Sequence[str], notes: Sequence[str], first: Sequence[Sequence[Sequence[str]]]
    ) -> int:
        calls.append((arguments, notes, first))
        return 0

    monkeypatch.setattr(here, "run_tests", noted)
    assert here.main(["test", "--fast", "-k", "some"]) == 0
    assert here.main(["test"]) == 0
    (arguments, notes, first), (_, _, first_of_all) = calls
    assert arguments == [*here.LANES, *here.FAST, "-k", "some"]
    for mark in ("broker", "spark", "slow"):
        assert f"not {mark}" in arguments[arguments.index("-m") + 1]
        assert mark in notes[0]
    assert first == ()
    assert first_of_all == here.PREPARATION


def suite_that_tells(folder: Path, told: Path) -> None:
    """Tests that wait as those of this checkout do, and which write the lines of `told` in the order of things."""
    tell = f"open({str(told)!r}, 'a').write"
    (folder / "conftest.py").write_text(
        f"from tests.prepared import Preparation\nimport pytest\nfirst = Preparation()\n"
        f"def pytest_collection_finish():\n    {tell}('collected\\n')\n"
        f"@pytest.hookimpl(tryfirst=True)\ndef pytest_runtestloop():\n    first.wait()\n"
    )
    (folder / "test_telling.py").write_text(f"def test_something():\n    {tell}('tested\\n')\n")


def test_tests_are_collected_meanwhile_and_begin_when_all_is_ready(here: ModuleType, tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.touch()
    suite_that_tells(tmp_path, told)
    prepare = program(
        f"import time\ntold = open({str(told)!r}, 'a+')\n"
        "while not (told.seek(0), told.read())[1]: time.sleep(0.01)\n"
        "print('ready', file=told)"
    )
    assert here.run_tests(["-q", *NO_CACHE, str(tmp_path)], [], ((prepare,),)) == 0
    assert told.read_text().split() == ["collected", "ready", "tested"]


def test_rows_are_made_ready_side_by_side(here: ModuleType, tmp_path: Path) -> None:
    there = tmp_path / "there"
    made, awaited = (
        program(f"open({str(there)!r}, 'x').close()"),
        program(f"import os, time\nwhile not os.path.exists({str(there)!r}): time.sleep(0.01)"),
    )
    suite_that_tells(tmp_path, tmp_path / "told")
    assert here.run_tests(["-q", *NO_CACHE, str(tmp_path)], [], ((awaited,), (made,))) == 0


def test_what_cannot_be_made_ready_ends_the_run(
    here: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    suite_that_tells(tmp_path, told)
    monkeypatch.setattr(here, "CHECKS", (("long", ("python", "-c", "import signal; signal.pause()")),))
    never = program("raise SystemExit('it was to be made after another')")
    long = program("import signal; signal.pause()")
    rows = ((long,), (program("raise SystemExit(7)"), never))
    assert here.run_tests([*NO_CACHE, str(tmp_path)], [], rows) == 7
    assert told.read_text().split() == ["collected"]
    shown = capfd.readouterr()
    assert "could not be made ready" in shown.out
    assert "after another" not in shown.err
    assert "checks that failed" not in shown.out


def test_preparing_ends_with_pytest(here: ModuleType, tmp_path: Path) -> None:
    waiting = program("import signal; signal.pause()")
    assert (
        here.run_tests(["--no-such-option", *NO_CACHE, str(tmp_path)], [], ((waiting,),))
        == pytest.ExitCode.USAGE_ERROR
    )


def test_what_is_started_meanwhile_does_not_wait_too(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setenv(VARIABLE, str(reading))
    preparation = Preparation()
    assert VARIABLE not in os.environ
    os.write(writing, b"\n")
    os.close(writing)
    preparation.wait()
    assert preparation.is_over
    preparation.wait()  # which it has to no more, should a process be lost


def test_without_a_preparation_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert Preparation().is_over


def test_both_sides_mean_the_same_variable(here: ModuleType) -> None:
    assert here.START_AFTER == VARIABLE
