"""Progress in numbers and on the screen."""

from __future__ import annotations

import io

import pytest

from stateflow.checkpoint.progress import Pace, Progress, ProgressBar, combined, render


def at(done: int, total: int, seconds: float, records: int = 0) -> Progress:
    return Progress("t", done, total, records, 0, seconds)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def seen(*moments: tuple[float, int]) -> Pace:
    pace = Pace()
    for seconds, done in moments:
        pace.observe(seconds, done)
    return pace


def test_the_rest_takes_as_long_as_the_last_seconds_say() -> None:
    progress = at(250, 1_000, 5.0, records=100)
    assert (progress.fraction, progress.slots_remaining, progress.records_per_second) == (0.25, 750, 20.0)
    assert seen((1.0, 50), (3.0, 150), (5.0, 250)).eta_seconds(750) == 15.0
    assert at(0, 0, 0.0).fraction == 1.0


def test_before_there_is_a_basis_there_is_no_eta() -> None:
    assert seen().eta_seconds(10) is None
    assert seen((30.0, 0)).eta_seconds(10) is None, "nothing was done yet"
    assert seen((0.5, 10), (1.5, 20)).eta_seconds(10) is None, "one second is no basis"
    assert seen((0.5, 10), (9.0, 10)).eta_seconds(10) is None, "one batch is none, whenever it was"
    assert seen().eta_seconds(0) == 0.0


def test_the_time_to_the_first_answer_does_not_count() -> None:
    """Three seconds to connect and a first batch of 1,000 of two million: the mean said 100 minutes, seconds it was."""
    pace = seen((3.0, 1_000), (4.0, 200_000), (5.0, 400_000), (6.0, 600_000))
    eta_seconds = pace.eta_seconds(1_400_000)
    assert eta_seconds is not None
    assert 6.0 < eta_seconds < 8.0


def test_what_was_long_ago_is_forgotten_and_a_standstill_is_not() -> None:
    fast_then_slow = seen(
        *((float(second), 1_000 * min(second, 10) + max(0, second - 10)) for second in range(40))
    )
    assert fast_then_slow.per_second == pytest.approx(1.0)
    still = seen((0.0, 100), (1.0, 200), (2.0, 300))
    before = still.eta_seconds(100)
    still.observe(60.0, 300)
    after = still.eta_seconds(100)
    assert before is not None
    assert after is not None
    assert after > 10 * before


def test_work_that_goes_back_begins_anew() -> None:
    pace = seen((1.0, 800), (2.0, 810), (3.0, 820), (4.0, 100))
    assert pace.eta_seconds(900) is None, "there is no basis yet"
    pace.observe(6.0, 300)
    assert pace.eta_seconds(700) == pytest.approx(7.0)


def test_chunks_that_come_seldom_tell_their_rate() -> None:
    pace = seen(*((tick / 2, tick // 30 * 200_000) for tick in range(200)))
    assert pace.per_second == pytest.approx(200_000 / 15, rel=0.5)


@pytest.mark.parametrize(
    ("eta_seconds", "said"), [(5, "5.0 s"), (42, "42 s"), (125, "2 min 05 s"), (7_500, "2 h 05 min")]
)
def test_a_line_says_all(eta_seconds: float, said: str) -> None:
    line = render(at(100, 142, 100.0, records=50), eta_seconds)
    assert line.startswith("t [")
    assert line.endswith(f"ETA {said}")
    assert "100/142 offsets" in line
    assert "ETA" not in render(at(100, 142, 100.0))
    assert "ETA" not in render(at(142, 142, 100.0), 0.0)


def test_no_bar_for_nothing_or_for_less_than_a_second() -> None:
    for out in (Terminal(), io.StringIO()):
        for progress in (at(0, 0, 30.0), at(10, 10, 0.9)):
            bar = ProgressBar(out)
            bar.update(progress)
            bar.finish(progress)
        assert out.getvalue() == ""


def test_restores_side_by_side_add_up_over_one_wall_time() -> None:
    total = combined("all", [at(1, 10, 5.0, 1), at(2, 20, 6.0, 2)], 7.0)
    assert (total.slots_done, total.slots_total, total.records_total, total.seconds) == (3, 30, 3, 7.0)


def test_a_terminal_gets_one_line_that_is_drawn_over() -> None:
    out = Terminal()
    bar = ProgressBar(out)
    for tick in range(5):
        bar.update(at(tick, 10, 1 + tick * 0.06))
    bar.finish(at(10, 10, 2.0))
    text = out.getvalue()
    assert text.count("\r") == 4, "drawn at 1, 1.12, 1.24 s and at the end"
    assert text.endswith("\n")
    assert text.count("\n") == 1


def test_a_bar_that_is_given_up_leaves_its_line() -> None:
    out = Terminal()
    never, begun = ProgressBar(out), ProgressBar(out)
    never.update(at(1, 10, 0.5))
    begun.update(at(1, 10, 1.5))
    never.leave()
    begun.leave()
    assert out.getvalue().count("\r") == 1
    assert out.getvalue().count("\n") == 1


def test_elsewhere_it_is_a_plain_line_now_and_then() -> None:
    out = io.StringIO()
    bar = ProgressBar(out)
    for second in range(13):
        bar.update(at(second, 20, float(second)))
    bar.finish(at(20, 20, 13.0))
    lines = out.getvalue().splitlines()
    assert len(lines) == 4, "at 1, 6 and 11 s and at the end"
    assert "\r" not in out.getvalue()
    assert "100%" in lines[-1]
