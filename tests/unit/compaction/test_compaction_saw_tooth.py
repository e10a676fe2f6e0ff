"""The chart of a topic's saw-tooth: now against recommended, with the bound drawn."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.advice.recommend import recommend
from stateflow.compaction.model.workload import RestoreRate
from stateflow.compaction.pages.saw_tooth import SawTooth, saw_tooth_chart
from stateflow.compaction.pages.topic_page import topic_page
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy

FOUND = Measurement.known(
    "t",
    live_keys=10_000,
    updates_per_second=4000,
    record_bytes=571,
    restore=RestoreRate(100_000, 0.05, "given", 0.1),
    cleaner=CleanerSettings(backoff_ms=100),
    policy=Policy(segment_ms=20_000, dirty_ratio=0.5),
)
TOP, BOTTOM = 12.0, 300 - 42.0


def heights(chart: str, style: int) -> list[float]:
    (points,) = re.findall(rf'<polyline class="line s{style}" points="([^"]+)"', chart)
    return [float(point.split(",")[1]) for point in points.split()]


def bound_height(chart: str) -> float:
    found = re.search(r'class="bound"[^>]* y1="([\d.]+)"', chart)
    assert found is not None
    return float(found[1])


def test_a_saw_tooth_climbs_within_its_period_and_falls() -> None:
    points = SawTooth(1.0, 3.0, 10.0).points(25.0, 0.0, 0.0)
    for corner in ((0, 1), (10, 3), (10, 1), (20, 3), (20, 1), (25, 2)):
        assert corner in points
    assert [at for at, _ in points] == sorted(at for at, _ in points)


def test_a_log_that_is_half_way_up_goes_on_from_there() -> None:
    points = SawTooth(1.0, 3.0, 10.0).points(12.0, 0.0, 2.0)
    assert points[0] == (0.0, 2.0)
    assert (5.0, 3.0) in points
    assert points[-1] == pytest.approx((12.0, 2.4))


def test_the_recommended_tooth_stays_under_the_bound_and_the_present_one_does_not() -> None:
    chart, caption = saw_tooth_chart(FOUND, recommend(FOUND, objective=Objective(0.4)))
    bound = bound_height(chart)
    assert min(heights(chart, 1)) > bound, "higher up is a smaller number"
    assert min(heights(chart, 0)) < bound
    assert "bound: 400 ms" in chart
    assert "comes to" in caption


def test_a_log_that_is_never_cleaned_climbs_from_where_it_is() -> None:
    never = replace(FOUND, policy=Policy(dirty_ratio=1.0), records=30_000)
    chart, caption = saw_tooth_chart(never, recommend(never, objective=Objective(0.4)))
    line = heights(chart, 0)
    assert line == sorted(line, reverse=True), "ever higher"
    assert "unbounded" in caption


@pytest.mark.parametrize("seconds", [0.13, 0.4, 5.0, 500.0])
def test_every_line_lies_within_the_chart(seconds: float) -> None:
    chart, _ = saw_tooth_chart(FOUND, recommend(FOUND, objective=Objective(seconds)))
    for style in (0, 1):
        assert all(TOP <= height <= BOTTOM for height in heights(chart, style))
    assert TOP <= bound_height(chart) <= BOTTOM


def test_the_page_has_the_chart_and_what_to_mind() -> None:
    idle = replace(FOUND, writes_seen=False)
    page = topic_page([(idle, recommend(idle, objective=Objective(0.4)))])
    assert "predicted restore time from pass to pass" in page
    assert "Nobody wrote to it" in page
