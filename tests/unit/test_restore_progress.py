"""Progress in numbers and on the screen."""

from __future__ import annotations

import io

import pytest

from stateflow.checkpoint.progress import Progress, ProgressBar, combined, render


def at(done: int, total: int, seconds: float, records: int = 0) -> Progress:
    return Progress("t", done, total, records, 0, seconds)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_rest_takes_as_long_as_the_mean_rate_says() -> None:
    progress = at(250, 1_000, 5.0, records=100)
    assert (progress.fraction, progress.slots_remaining) == (0.25, 750)
    assert (progress.slots_per_second, progress.records_per_second) == (50.0, 20.0)
    assert progress.eta_seconds == 15.0


def test_before_anything_was_done_there_is_no_eta() -> None:
    assert at(0, 10, 0.0).eta_seconds is None
    assert at(0, 10, 3.0).eta_seconds is None
    assert at(0, 0, 0.0).eta_seconds == 0.0
    assert at(0, 0, 0.0).fraction == 1.0


@pytest.mark.parametrize(
    ("remaining", "said"), [(5, "5.0 s"), (42, "42 s"), (125, "2 min 05 s"), (7_500, "2 h 05 min")]
)
def test_a_line_says_all(remaining: int, said: str) -> None:
    line = render(at(100, 100 + remaining, 100.0, records=50))
    assert line.startswith("t [")
    assert line.endswith(f"ETA {said}")
    assert f"100/{100 + remaining:,} offsets" in line


def test_restores_side_by_side_add_up_over_one_wall_time() -> None:
    total = combined("all", [at(1, 10, 5.0, 1), at(2, 20, 6.0, 2)], 7.0)
    assert (total.slots_done, total.slots_total, total.records_total, total.seconds) == (3, 30, 3, 7.0)


def test_a_terminal_gets_one_line_that_is_drawn_over() -> None:
    out = Terminal()
    bar = ProgressBar(out)
    for tick in range(5):
        bar.update(at(tick, 10, tick * 0.06))
    bar.finish(at(10, 10, 1.0))
    text = out.getvalue()
    assert text.count("\r") == 4, "drawn at 0, 0.12, 0.24 s and at the end"
    assert text.endswith("\n")
    assert text.count("\n") == 1


def test_elsewhere_it_is_a_plain_line_now_and_then() -> None:
    out = io.StringIO()
    bar = ProgressBar(out)
    for second in range(12):
        bar.update(at(second, 20, float(second)))
    bar.finish(at(20, 20, 12.0))
    lines = out.getvalue().splitlines()
    assert len(lines) == 4
    assert "\r" not in out.getvalue()
    assert "100%" in lines[-1]
