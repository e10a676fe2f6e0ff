"""Tables for people: what stands on a topic is shown and never obeyed by the terminal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stateflow.cli.output import emit_pairs, emit_table

HOSTILE = "\x1b[2Jall is well\r\n\x9b31m\u2028end"


def as_table(text: str) -> None:
    emit_table(["key"], [[text]])


def as_pair(text: str) -> None:
    emit_pairs([("key", text)])


@pytest.mark.parametrize("emit", [as_table, as_pair])
def test_control_characters_are_shown_and_not_sent_to_the_terminal(
    emit: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    emit(HOSTILE)
    said = capsys.readouterr().out
    assert all(character.isprintable() for character in said.replace("\n", ""))
    assert said.splitlines()[-1].endswith(r"\x1b[2Jall is well\r\n\x9b31m\u2028end")


def test_other_scripts_and_signs_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    emit_table(["a"], [["naïve → 東京 …"]])
    assert capsys.readouterr().out == "a\nnaïve → 東京 …\n"
