"""Every error has its own exit code, a place in the documented table, and a sentence that says what to do."""

import re
from pathlib import Path

from stateflow.errors import StateCorrupt, StateflowError, exit_codes

OPERATING = Path(__file__).parents[2] / "docs" / "operating.md"


def test_the_documented_table_is_the_tree() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", OPERATING.read_text(), re.MULTILINE)
    assert {int(code): name for code, name in rows} == {
        code: error.__name__ for code, error in exit_codes().items()
    }


def test_the_documented_table_of_what_is_waited_for_is_the_tree() -> None:
    section = OPERATING.read_text().partition("### What a running worker waits for")[2].partition("\n## ")[0]
    documented = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    retriable = {error.__name__ for error in exit_codes().values() if error.retriable}
    assert documented == retriable | {"StateCorrupt"}


def test_damage_passes_only_where_the_store_can_be_replaced() -> None:
    assert StateCorrupt("damaged.", action="start again.", replaceable=True).is_retriable
    assert not StateCorrupt("damaged.", action="another image.").is_retriable


def test_an_error_reads_as_what_broke_and_what_to_do() -> None:
    error = StateflowError("the topic is gone.", action="create it.", topic="t")
    assert str(error) == "the topic is gone. What to do: create it."
    assert error.fields == {"topic": "t"}
