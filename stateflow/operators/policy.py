"""What a step does with a record that it cannot process, and with one that comes too late.

A record is never lost in silence: every policy but ``Fail`` counts what it let go.
"""

from __future__ import annotations

from dataclasses import dataclass

from stateflow.errors import GraphError


@dataclass(frozen=True, slots=True)
class Fail:
    """Stop the task with an error that names the record; it is read again once the cause is repaired."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Leave the record out and count it (``skipped_records_total``)."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Send the input record, as it was read, to a topic and go on (``dead_letters_total``).

    Headers say what happened: ``sf-error-class``, ``sf-error-message``, ``sf-topic``, ``sf-partition``,
    ``sf-offset``, ``sf-step``, ``sf-attempts``; the record's own headers are kept beside them.
    """

    topic: str


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again at once, up to ``attempts`` more times (``retried_records_total``), then follow ``then``."""

    attempts: int
    then: Fail | Skip | DeadLetter = Fail()

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise GraphError(
                f"Retry({self.attempts}) never retries.",
                action="Ask for one attempt or more, or use its `then`.",
            )


Policy = Fail | Skip | DeadLetter | Retry
LatePolicy = Skip | DeadLetter


def dead_letter_topics(*policies: Policy) -> tuple[str, ...]:
    """Topics that these policies may write to."""
    last = [policy.then if isinstance(policy, Retry) else policy for policy in policies]
    return tuple(policy.topic for policy in last if isinstance(policy, DeadLetter))
