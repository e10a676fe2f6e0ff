"""Asking before something is deleted or given up."""

from __future__ import annotations

import click

from stateflow.errors import Interrupted


def confirm(question: str, *, yes: bool, as_json: bool) -> None:
    """Go on if it was agreed to, by ``--yes`` or by the answer; where nobody can answer, it was not.

    Raises ``Interrupted``.
    """
    if not yes and (as_json or not _is_agreed(question)):
        raise Interrupted("Nothing was done.", action="give --yes to go ahead without being asked.")


def _is_agreed(question: str) -> bool:
    try:
        return click.confirm(question)
    except click.Abort as stopped:
        if not isinstance(stopped.__context__, EOFError):  # Ctrl-C
            raise
        click.echo()
        return False
