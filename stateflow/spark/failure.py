"""An error on its way from an executor to the driver, where it is raised again with its own type."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, cast

from stateflow import errors
from stateflow.errors import (
    BrokerUnreachable,
    OffsetsPending,
    ProducerFenced,
    StateflowError,
    StateLocked,
    TransactionAborted,
)

WORTH_ANOTHER_ATTEMPT = (BrokerUnreachable, OffsetsPending, ProducerFenced, StateLocked, TransactionAborted)
"""What Spark may cure by another attempt of the task."""

_RAISED = re.compile(r"^stateflow\.errors\.(\w+): (.+) What to do: (.+)$", re.MULTILINE)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Failure:
    """An error on its way from an executor."""

    kind: str
    message: str
    action: str
    fields: dict[str, object] = field(default_factory=dict)
    """Those that travel: text and numbers."""

    @classmethod
    def of(cls, error: StateflowError) -> Failure:
        """An error as it travels."""
        fields: dict[str, object] = {
            name: value for name, value in error.fields.items() if isinstance(value, str | int | float)
        }
        return cls(type(error).__name__, error.message, error.action, fields)

    def to_error(self) -> StateflowError:
        """The error again, with its class."""
        kind = getattr(errors, self.kind, StateflowError)
        return cast(StateflowError, kind(self.message, action=self.action, **self.fields))


def result_or_failure(work: Callable[[], Result], *, retries: bool = False) -> Result | Failure:
    """The result of a job, or the failure that no other attempt can cure. Raises one that another may cure.

    With ``retries`` those are all that say so of themselves, as a running worker would try again.
    """
    try:
        return work()
    except WORTH_ANOTHER_ATTEMPT:
        raise
    except StateflowError as error:
        if retries and error.is_retriable:
            raise
        return Failure.of(error)


def error_in(text: str) -> StateflowError | None:
    """The error of ours that a task's traceback ends with, where no further one came of it; without its fields."""
    found = _RAISED.findall(text)
    return None if not found else Failure(*found[-1]).to_error()


def last_line(text: str) -> str:
    """The line of a task's traceback that names the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line and not line.startswith(("at ", "File "))]
    return named[-1] if named else (lines[0] if lines else "no reason given")
