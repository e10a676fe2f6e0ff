"""The kept ratios as a plot on a logarithmic axis: how many times as fast, and how many times as cheap in CPU."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape

from stateflow.lab.bench.page import Result
from stateflow.lab.bench.rows import ROWS, Row

_WIDTH, _LEFT, _RIGHT, _TOP, _ROW, _BAR = 900, 400, 60, 66, 44, 14
_NUMBER_WIDTH = 40
_LEAST, _MOST = 0.1, 100.0
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_FAST, _CHEAP, _INK, _FAINT, _AIM = "#2a6fbb", "#8fbf6f", "#222222", "#d8d8d8", "#c0392b"
_PEER_NAMES = {"kafka-streams": "Kafka Streams", "quix": "Quix", "faust": "Faust"}
_JAVA_WORKS = frozenset({"read", "write"})


@dataclass(frozen=True, slots=True)
class Bar:
    """One work beside one peer."""

    title: str
    rates: float
    costs: float
    aim: float | None


def bars(results: Mapping[str, Result]) -> list[Bar]:
    """Of every result that has ratios of rates and of CPU."""
    return [
        Bar(
            f"{row.title} ({_beside(row, peer)})",
            results[row.name]["ratios"][peer]["median"],
            results[row.name]["cpu_ratios"][peer]["median"],
            row.aim_beside(peer),
        )
        for row in ROWS
        if "cpu_ratios" in results.get(row.name, {})
        for peer in results[row.name]["cpu_ratios"]
    ]


def _beside(row: Row, peer: str) -> str:
    return "Java" if row.words[0] in _JAVA_WORKS else _PEER_NAMES.get(peer, peer)


def svg(shown: list[Bar]) -> str:
    """A drawing of 900 units in width."""
    height = _TOP + _ROW * len(shown) + 16
    font = 'font-family="Helvetica, Arial, sans-serif"'
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" {font} font-size="13">'
    parts = [begin, f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>', *_legend()]
    parts += _axis(height)
    for number, bar in enumerate(shown):
        parts += _row(bar, _TOP + _ROW * number)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend() -> Iterator[str]:
    places = (
        (16, _FAST, "times as fast"),
        (140, _CHEAP, "times as cheap in CPU"),
        (320, _AIM, "aim of the rate"),
    )
    for left, colour, text in places:
        width = 3 if colour == _AIM else 12
        yield f'<rect x="{left}" y="14" width="{width}" height="12" fill="{colour}"/>'
        yield f'<text x="{left + 18}" y="25" fill="{_INK}">{text}</text>'


def _axis(height: int) -> Iterator[str]:
    for tick in _TICKS:
        place, colour = _at(tick), _INK if tick == 1 else _FAINT
        yield f'<line x1="{place}" y1="{_TOP - 8}" x2="{place}" y2="{height - 12}" stroke="{colour}"/>'
        yield f'<text x="{place}" y="{_TOP - 14}" text-anchor="middle" fill="{_INK}">{tick:g}</text>'


def _row(bar: Bar, top: int) -> Iterator[str]:
    middle = top + _BAR + 5
    yield f'<text x="{_LEFT - 12}" y="{middle}" text-anchor="end" fill="{_INK}">{escape(bar.title)}</text>'
    yield from _bar(bar.rates, top, _FAST, bar.aim)
    yield from _bar(bar.costs, top + _BAR + 2, _CHEAP, None)


def _bar(ratio: float, top: int, colour: str, aim: float | None) -> Iterator[str]:
    begin, end = sorted((_at(1), _at(ratio)))
    width = max(end - begin, 1)
    yield f'<rect x="{begin}" y="{top}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>'
    if aim is not None:
        yield f'<rect x="{_at(aim) - 1.5:.1f}" y="{top - 3}" width="3" height="{_BAR + 6}" fill="{_AIM}"/>'
        end = max(end, _at(aim)) if _at(aim) < end + _NUMBER_WIDTH else end
    yield f'<text x="{end + 8:.1f}" y="{top + 12}" font-size="12" fill="{_INK}">{ratio:g}</text>'


def _at(ratio: float) -> float:
    """Where on the axis; what lies beyond it is at its end."""
    within = min(max(ratio, _LEAST), _MOST)
    share = math.log(within / _LEAST) / math.log(_MOST / _LEAST)
    return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)
