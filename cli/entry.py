"""Where the `stateflow` program begins: until its command does, Ctrl-C ends it at once, without a trace of imports.

An exception amid an import is told by whoever imports, and may leave half a module; nothing is to be put in order yet.
"""

from __future__ import annotations

import os
import signal
import sys

_SAID = "Stopped by the user.", "Start it again to go on."
_EXIT_CODE = 130


def main() -> None:
    """Entry point of the `stateflow` script."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from stateflow.cli.main import main as command_line  # after the handler: this is what takes long

    command_line()


def begin_commands() -> None:
    """From now on Ctrl-C is an exception again, which commands put their things in order for."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: object) -> None:
    """Say what ``report`` says of an interrupt, without importing anything, and end."""
    message, action = _SAID
    if "--json" in sys.argv:
        body = f'"message": "{message}", "action": "{action}", "exit_code": {_EXIT_CODE}, "fields": {{}}'
        os.write(1, f'{{"error": "Interrupted", {body}}}\n'.encode())
    else:
        os.write(2, f"error: {message} What to do: {action}\n".encode())
    os._exit(_EXIT_CODE)
