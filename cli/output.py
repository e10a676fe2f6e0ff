"""What commands print: JSON, a value on each line, for programs; aligned text for people."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click


def emit_json(data: object) -> None:
    """Write one JSON value on one line of stdout; unknown types (paths, enums) as their text."""
    click.echo(json.dumps(data, default=str))


def emit_pairs(pairs: Sequence[tuple[str, object]]) -> None:
    """Write `name  value` lines, values aligned; a value of None is left out."""
    shown = [(name, value) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"{name:<{width}}  {printable(str(value))}")


def emit_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write rows under a header; numbers are set to the right, text to the left."""
    texts = [[printable(str(cell)) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(header), *texts]) for i in range(len(header))]
    right = [bool(rows) and all(isinstance(row[i], int | float) for row in rows) for i in range(len(header))]
    for line in [list(header), *texts]:
        cells = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def printable(text: str) -> str:
    """A text with control characters written out: keys on a topic are anybody's, and a terminal obeys such."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def human_bytes(size_bytes: float) -> str:
    """A size for people: `0 B`, `1.5 KiB`, `37 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return (
                f"{size_bytes:.0f} {unit}" if unit == "B" or size_bytes >= 10 else f"{size_bytes:.1f} {unit}"
            )
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"
