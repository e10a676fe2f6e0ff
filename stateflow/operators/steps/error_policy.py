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

    Headers say what happened: ``sf-error-class``, ``sf-error-message``, ``sf-step``, ``sf-attempts``; and to which
    record of a source topic: ``sf-topic``, ``sf-partition``, ``sf-offset``, behind a re-key step ``sf-key``, too, and
    in ``sf-read`` where it was read. The record's own headers are kept beside them. A value that is too large for the
    topic is cut; ``sf-value-bytes`` tells its length then.
    """

    topic: str

    def __post_init__(self) -> None:
        if not isinstance(self.topic, str) or not self.topic:
            raise GraphError(
                f"DeadLetter({self.topic!r}) names no topic.", action="Give the topic by its name, a str."
            )


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
        if not isinstance(self.then, Fail | Skip | DeadLetter):
            raise GraphError(
                f"Retry cannot end in then={self.then!r}.",
                action="Give then=Fail(), Skip() or DeadLetter(topic).",
            )


Policy = Fail | Skip | DeadLetter | Retry
LatePolicy = Skip | DeadLetter


def retries_of(policy: Policy) -> int:
    """How many more times a policy has a function called that failed."""
    return policy.attempts if isinstance(policy, Retry) else 0


def last_of(policy: Policy) -> Fail | Skip | DeadLetter:
    """What a policy does when no attempt is left."""
    return policy.then if isinstance(policy, Retry) else policy


def check_late_policy(where: str, late: object) -> None:
    """Raise ``GraphError`` for anything but a policy for late records."""
    if not isinstance(late, Skip | DeadLetter):
        raise GraphError(
            f"{where} was given late={late!r}.",
            action="Give late=Skip() or DeadLetter(topic); records are late as a matter of course, so there is"
            " nothing to fail on or to try again.",
        )


def dead_letter_topics(*policies: Policy) -> tuple[str, ...]:
    """Topics that these policies may write to; raises ``GraphError`` for what is no policy."""
    for policy in policies:
        if not isinstance(policy, Fail | Skip | DeadLetter | Retry):
            raise GraphError(
                f"A step was given on_error={policy!r}.",
                action="Give on_error=Fail(), Skip(), DeadLetter(topic) or Retry(attempts, then=…).",
            )
    return tuple(last.topic for last in map(last_of, policies) if isinstance(last, DeadLetter))
