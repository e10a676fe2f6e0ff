"""The demo's end page: self-contained, truthful, and safe with odd text."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "examples" / "flights"
sys.path.insert(0, str(FOLDER))
try:
    import page
    from compare import Comparison
    from report import Placement, Report, Step, TopicBytes
finally:
    sys.path.remove(str(FOLDER))


@pytest.fixture
def report() -> Report:
    made = Report(started="2026-11-21 06:00 UTC", flights=336_776, workers=2, records=336_776)
    made.steps = [
        Step("Start a broker", "A real Kafka.", 3.1, [("to the first answer", "2.9 s")], ["stateflow up"]),
        Step("Kill <a> worker", "It died.", 12.0),
    ]
    made.comparisons = [
        Comparison("airport hours", 21_148, 21_148, 0),
        Comparison("aircraft", 3_635, 3_635, 0),
    ]
    made.placements = [Placement("hourly", 21_148, 0)]
    made.changelogs = [TopicBytes("flights-hourly-changelog", 9_000_000, 3_000_000)]
    made.ranking = [("N292JB", "EMBRAER", 4524), ("N15980", "EMBRAER", 4373)]
    made.delay_by_month = {"JFK": {month: float(month) for month in range(1, 13)}}
    made.look = [("the state", "stateflow state scan")]
    made.restore_seconds, made.repartition_seconds = 1.234, 20.0
    return made


class Outline(HTMLParser):
    """Collects open tags, and refuses a page whose tags do not nest."""

    VOID = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "data", "action")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_nests_and_loads_nothing(report: Report) -> None:
    text, outline = page.render(report), Outline()
    outline.feed(text)
    outline.close()
    assert outline.open == []
    assert outline.links == []
    assert not re.search(r"@import|<script", text)
    assert set(re.findall(r"url\(([^)]*)\)", text)) <= {"#w-a", "#w-h"}


def test_page_follows_light_dark_and_width(report: Report) -> None:
    text = page.render(report)
    assert "prefers-color-scheme: dark" in text
    assert "width=device-width" in text
    assert "@media (max-width: 640px)" in text


def test_page_shows_what_was_measured(report: Report) -> None:
    text = page.render(report)
    for shown in (
        "336,776",
        "1.23 s",
        "20.0 s",
        "8.6 MiB → 2.9 MiB",
        "21,148",
        "4,524 min",
        "$ stateflow up",
        "worst in Dec, 12.0 min",
        "2.9 s",
    ):
        assert shown in text
    assert "All 24,783 answers equal" in text


def test_page_shows_nothing_that_was_not_measured() -> None:
    text = page.render(Report(started="now", flights=10, workers=2, failure="BrokerUnreachable: no answer"))
    assert "The run stopped before its end: BrokerUnreachable: no answer" in text
    for absent in ("restored in", "repartitioned in", "<h2>Changelogs", "top ten", "<h2>Are the answers"):
        assert absent not in text


def test_page_escapes_text(report: Report) -> None:
    assert "Kill &lt;a&gt; worker" in page.render(report)
    assert "Kill <a>" not in page.render(report)


def test_a_wrong_answer_is_told_everywhere(report: Report) -> None:
    report.comparisons[1] = Comparison(
        "aircraft", 3_635, 3_634, 2, ["N1 is missing.", "N2: minutes is 1, should be 2."]
    )
    assert not report.ok
    assert report.summary()["mismatches"] == 2
    for text in (page.render(report), page.terminal_summary(report)):
        assert "2 of 24,782 answers are wrong." in text
        assert "N2: minutes is 1, should be 2." in text
    assert "✗ differs" in page.render(report)


def test_a_misplaced_key_is_not_ok(report: Report) -> None:
    report.placements.append(Placement("aircraft", 3_635, 1))
    assert not report.ok
    assert report.mismatches == 1


def test_a_report_without_comparisons_is_not_ok(report: Report) -> None:
    report.comparisons.clear()
    assert not report.ok


def test_summary_is_one_json_object_with_the_promised_fields(report: Report) -> None:
    summary = json.loads(json.dumps(report.summary()))
    promised = {
        "ok": True, "records": 336_776, "mismatches": 0, "restore_seconds": 1.23, "repartition_seconds": 20.0,
        "changelog_bytes_before": 9_000_000, "changelog_bytes_after": 3_000_000,
    }  # fmt: skip
    assert promised.items() <= summary.items()
    json.dumps(report.as_data())


def test_terminal_summary_lists_checks_ranking_and_places(report: Report) -> None:
    text = page.terminal_summary(report)
    assert "21,148 airport hours: 0 wrong" in text
    assert " 1. N292JB" in text
    assert "stateflow state scan" in text
