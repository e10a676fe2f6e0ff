"""Charts as SVG text, drawn without any library: lines over time, and points on logarithmic axes.

Colours and fonts come from the page's style sheet by class (``s0`` … ``s5`` for series), so that one chart serves
light and dark pages. Every series is labelled in words too, never by colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 12, 42
_POINTS_MAX = 600


@dataclass(frozen=True, slots=True)
class Series:
    """A named line."""

    name: str
    points: Sequence[tuple[float, float]]
    style: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """A named point."""

    name: str
    x: float
    y: float
    style: int = 0


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its label, its ends, and whether it is logarithmic."""

    label: str
    low: float
    high: float
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """Where a value lies between the ends, 0 to 1, clipped."""
        if self.logarithmic:
            low, high, value = math.log10(self.low), math.log10(self.high), math.log10(max(value, self.low))
        else:
            low, high = self.low, self.high
        return min(max((value - low) / (high - low), 0.0), 1.0)

    def ticks(self) -> list[float]:
        """Round values between the ends."""
        if self.logarithmic:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1, 2, 5) if len(decades) <= 3 else (1,)
            found = [step * 10.0**decade for decade in decades for step in steps]
        else:
            step = _round_step((self.high - self.low) / 5)
            found = [
                step * index for index in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)
            ]
        return [tick for tick in found if self.low <= tick <= self.high * 1.0001]


def line_chart(
    title: str, series: Sequence[Series], x: Axis, y: Axis, bound: tuple[str, float] | None = None
) -> str:
    """Lines over a common axis, with a horizontal bound if there is one."""
    parts = [_frame(x, y)]
    parts += [_polyline(one, x, y, "line") for one in series]
    if bound is not None:
        parts.append(_bound(y, *bound))
    return _svg(title, parts) + _legend([(one.name, one.style) for one in series])


def scatter(title: str, marks: Sequence[Mark], x: Axis, y: Axis, curves: Sequence[Series] = ()) -> str:
    """Numbered points with curves behind them, and what the numbers stand for below."""
    parts = [_frame(x, y), *(_polyline(curve, x, y, "line dashed") for curve in curves)]
    ordered = sorted(marks, key=lambda one: one.x)
    parts += [
        _mark(str(number), mark, _x(x, mark.x), _y(y, mark.y)) for number, mark in enumerate(ordered, 1)
    ]
    items = "".join(
        f'<span><b class="number s{mark.style}">{number}</b>{escape(mark.name)}</span>'
        for number, mark in enumerate(ordered, 1)
    )
    lines = "".join(
        f'<span><i class="key s{curve.style}"></i>{escape(curve.name)}</span>' for curve in curves
    )
    return _svg(title, parts) + f'<p class="legend">{items}{lines}</p>'


def span(values: Sequence[float], *, logarithmic: bool = False) -> tuple[float, float]:
    """Ends of an axis with some air: from 0 for a linear one."""
    high = max(values)
    if logarithmic:
        return min(values) / 1.3, high * 1.5
    return 0.0, high * 1.08 or 1.0


def _polyline(one: Series, x: Axis, y: Axis, css: str) -> str:
    thinned = one.points[:: max(1, len(one.points) // _POINTS_MAX)]
    path = " ".join(f"{_x(x, at):.1f},{_y(y, value):.1f}" for at, value in thinned)
    return (
        f'<polyline class="{css} s{one.style}" points="{path}"><title>{escape(one.name)}</title></polyline>'
    )


def _mark(label: str, mark: Mark, at_x: float, at_y: float) -> str:
    return (
        f'<circle class="mark s{mark.style}" cx="{at_x:.1f}" cy="{at_y:.1f}" r="9"/>'
        f'<text class="on" x="{at_x:.1f}" y="{at_y + 4:.1f}" text-anchor="middle">{escape(label)}'
        f"<title>{escape(mark.name)}</title></text>"
    )


def _frame(x: Axis, y: Axis) -> str:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    parts = [f'<rect class="plot" x="{_LEFT}" y="{_TOP}" width="{right - _LEFT}" height="{bottom - _TOP}"/>']
    for tick in x.ticks():
        at = _x(x, tick)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{bottom}"/>')
        parts.append(f'<text x="{at:.1f}" y="{bottom + 15}" text-anchor="middle">{_number(tick)}</text>')
    for tick in y.ticks():
        at = _y(y, tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{_number(tick)}</text>')
    middle_x, middle_y = (_LEFT + right) / 2, (_TOP + bottom) / 2
    parts.append(
        f'<text class="axis" x="{middle_x}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x.label)}</text>'
    )
    turn = f'transform="rotate(-90 14 {middle_y})"'
    parts.append(
        f'<text class="axis" x="14" y="{middle_y}" text-anchor="middle" {turn}>{escape(y.label)}</text>'
    )
    return "".join(parts)


def _bound(y: Axis, name: str, value: float) -> str:
    at, right = _y(y, value), WIDTH - _RIGHT
    return (
        f'<line class="bound" x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>'
        f'<text class="name" x="{right - 4}" y="{at - 5:.1f}" text-anchor="end">{escape(name)}</text>'
    )


def _svg(title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def _legend(names: Sequence[tuple[str, int]]) -> str:
    if len(names) < 2:
        return ""
    items = "".join(f'<span><i class="key s{style}"></i>{escape(name)}</span>' for name, style in names)
    return f'<p class="legend">{items}</p>'


def _x(axis: Axis, value: float) -> float:
    return _LEFT + axis.place(value) * (WIDTH - _RIGHT - _LEFT)


def _y(axis: Axis, value: float) -> float:
    return HEIGHT - _BOTTOM - axis.place(value) * (HEIGHT - _BOTTOM - _TOP)


def _number(value: float) -> str:
    return f"{value:g}"


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor for factor in (1, 2, 5, 10) if factor * power >= rough) * power
