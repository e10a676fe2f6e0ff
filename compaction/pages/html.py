"""The few pieces of HTML that the pages share."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from stateflow.compaction.pages.style import STYLE


def page(title: str, body: str) -> str:
    """A whole page, its style in it."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>"
    )


def percent(share: float | None) -> str:
    """A share of a core, or a dash."""
    return "–" if share is None else f"{100 * share:.1f} %"


def figure(chart: str, caption: str) -> str:
    """A chart with its caption."""
    return f"<figure>{chart}<figcaption>{escape(caption)}</figcaption></figure>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; a first column that names the same workload in every row is left out."""
    if head[0] == "workload" and len({row[0] for row in rows}) == 1:
        head, rows = head[1:], [row[1:] for row in rows]
    heads = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = "".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in rows)
    return f"<div class='scroll'><table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>"


_LONG = 44
"""A longer cell may be broken into lines."""


def _cell(text: str) -> str:
    css = " class='long'" if len(text) > _LONG else ""
    return f"<td{css}>{escape(text)}</td>"
