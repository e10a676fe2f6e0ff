"""What a closed loop decided, kept as lines of JSON: every change of mind, and a sign of life in between."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path

from stateflow.compaction.control.watch import Decision
from stateflow.store.directory import make_private

_LOG = logging.getLogger(__name__)

BYTES_MAX = 1 << 20
"""A longer file becomes ``<name>.1``, in place of the one before."""
QUIET_SECONDS = 60.0
"""A decision like the last one is written only so often."""


class DecisionLog:
    """Appends decisions to a file. A disk that refuses is said once and does not stop the loop. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._news = News()
        self._refused = False

    def add(self, topic: str, decision: Decision) -> None:
        """Write a decision, unless it says what the last one of this topic said, a moment ago."""
        if not self._news.is_news(topic, decision):
            return
        line = json.dumps({"topic": topic, **asdict(decision)}) + "\n"
        try:
            make_private(self.path.parent)
            if self.path.exists() and self.path.stat().st_size + len(line) > BYTES_MAX:
                self.path.replace(self.path.with_name(self.path.name + ".1"))
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line)
            self._refused = False
        except OSError as error:
            if not self._refused:
                _LOG.warning("Decisions on compaction are not written to %s: %s", self.path, error)
            self._refused = True


class News:
    """Tells which decisions say more than the last one told of their topic. Not thread-safe."""

    def __init__(self) -> None:
        self._last: dict[str, Decision] = {}

    def is_news(self, topic: str, decision: Decision) -> bool:
        """True for a change, another action than the last one, and after a while; such a decision counts as told."""
        last = self._last.get(topic)
        if last is not None and _alike(last, decision):
            return False
        self._last[topic] = decision
        return True


def _alike(last: Decision, decision: Decision) -> bool:
    same = last.action == decision.action and last.action != "change"
    return same and decision.at_ms - last.at_ms < 1000 * QUIET_SECONDS
