"""Every error has its own exit code, a place in the documented table, and a sentence that says what to do."""

import re
from pathlib import Path

from stateflow.errors import StateflowError, exit_codes

OPERATING = Path(__file__).parents[2] / "docs" / "operating.md"


def test_the_documented_table_is_the_tree() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", OPERATING.read_text(), re.MULTILINE)
    assert {int(code): name for code, name in rows} == {
        code: error.__name__ for code, error in exit_codes().items()
    }


def test_an_error_reads_as_what_broke_and_what_to_do() -> None:
    error = StateflowError("the topic is gone.", action="create it.", topic="t")
    assert str(error) == "the topic is gone. What to do: create it."
    assert error.fields == {"topic": "t"}
