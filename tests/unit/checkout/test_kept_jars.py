"""Jars of several environments become one, and the archive of their classes is the same for all of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.class_archive import JavaProgram
from tests.kept_jars import is_shared, jars_of, share_jars


def installed(folder: Path, **contents: str) -> Path:
    """A home of Spark, each file of which is newer than those of homes before."""
    for name, content in {
        "bin/spark-submit": "#!",
        **{f"jars/{n}.jar": c for n, c in contents.items()},
    }.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        (folder / "jars" / "another-folder").mkdir(parents=True, exist_ok=True)
        os.utime(file, ns=(file.stat().st_ino, file.stat().st_ino))
    return folder


def archive_of(home: Path) -> Path:
    return JavaProgram("spark", Path("/bin/sh"), "", tuple(jars_of(home)), lambda _: None).archive


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STATEFLOW_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "spark-home"


def test_a_later_environment_has_the_archive_of_the_first(tmp_path: Path, kept: Path) -> None:
    first, second = (installed(tmp_path / name, a="jar a", b="jar b") for name in ("first", "second"))
    assert archive_of(first) != archive_of(second)
    for home in (first, second, first):
        share_jars(home, kept)
        assert is_shared(home, kept)
    assert archive_of(first) == archive_of(second)
    assert (kept / "bin" / "spark-submit").samefile(first / "bin" / "spark-submit")
    left = sorted(each.name for each in (second / "jars").iterdir())
    assert left == ["a.jar", "another-folder", "b.jar"]


def test_another_jar_stays_and_is_told_apart(tmp_path: Path, kept: Path) -> None:
    first = installed(tmp_path / "first", a="jar a", b="jar b")
    other = installed(tmp_path / "other", a="jar a", b="patched by hand")
    share_jars(first, kept)
    share_jars(other, kept)
    assert (other / "jars" / "b.jar").read_text() == "patched by hand"
    assert not is_shared(other, kept)
    assert archive_of(first) != archive_of(other)


def test_what_cannot_be_linked_is_left_as_it_is(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object) -> None:
        raise OSError("no links between file systems")

    home = installed(tmp_path / "first", a="jar a")
    with monkeypatch.context() as without_links:
        without_links.setattr(os, "link", refused)
        share_jars(home, kept)
    assert not is_shared(home, kept)
    assert "no links between file systems" in capsys.readouterr().out
    share_jars(home, kept)
    assert is_shared(home, kept)
