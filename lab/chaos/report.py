"""What a study met and found."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from stateflow.lab.chaos.oracle import Comparison


@dataclass
class Report:
    """Counts of what happened, and everything that must not have happened."""

    seed: int
    brokers: int
    rounds: int = 0
    events: Counter[str] = field(default_factory=Counter)
    exit_codes: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """Command → exit code → how often. ``run`` is the application, also where it was asked to stop."""
    restarted: Counter[str] = field(default_factory=Counter)
    """How workers ended that their supervisor started again."""
    ended: int = 0
    """The application ended, and nobody had asked it to."""
    stuck: int = 0
    """Something did not come to its end within its bound."""
    refused: int = 0
    """Commands that ended with an exit code that does not pass by itself."""
    crashed: int = 0
    """Traces of Python, and workers that ended by a signal that was not sent or by an error that nobody foresaw."""
    compared: Comparison = field(default_factory=Comparison)
    results: int = 0
    """Output records that were compared."""
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    logs: str | None = None
    """Where the logs are, if something was found."""

    def note_ended(self, what: str) -> None:
        """The application is gone."""
        self.ended += 1
        self.findings.append(f"ended: {what}")

    def note_stuck(self, what: str) -> None:
        """A bound is over."""
        self.stuck += 1
        self.findings.append(f"stuck: {what}")

    def note_refused(self, what: str) -> None:
        """A command failed for good."""
        self.refused += 1
        self.findings.append(f"refused: {what}")

    def note_crashed(self, what: str, times: int) -> None:
        """A worker crashed, or Python wrote a trace."""
        self.crashed += times
        self.findings.append(f"crashed: {what}, {times} times")

    @property
    def is_bad(self) -> bool:
        """True when a promise was broken."""
        found = self.compared
        of_data = found.different + found.lost + found.duplicated
        return self.ended + self.stuck + self.refused + self.crashed + of_data > 0

    def as_dict(self) -> dict[str, Any]:
        """The study as one JSON object."""
        return {
            "study": "chaos",
            "seed": self.seed,
            "brokers": self.brokers,
            "rounds": self.rounds,
            "events": dict(sorted(self.events.items())),
            "exit_codes": {
                command: {str(code): count for code, count in sorted(codes.items())}
                for command, codes in sorted(self.exit_codes.items())
            },
            "restarted": dict(sorted(self.restarted.items())),
            "results": self.results,
            "different": self.compared.different,
            "lost": self.compared.lost,
            "duplicated": self.compared.duplicated,
            "ended": self.ended,
            "stuck": self.stuck,
            "refused": self.refused,
            "crashed": self.crashed,
            "findings": [*self.findings, *self.compared.examples],
            "logs": self.logs,
            "seconds": round(self.seconds, 1),
        }
