"""Processes of a pool that end with the process that asked for them."""

from __future__ import annotations

import multiprocessing
import os
import threading


def end_with_parent() -> None:
    """Leave no process behind when the one that asked is killed: a pool's processes would wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is a process of a pool"

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
