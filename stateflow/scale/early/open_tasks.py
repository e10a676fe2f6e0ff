"""Which tasks of a restore have their databases open: a bounded number, so that files and memory are bounded, too.

Of the database of a task, and of the scratch database by which its ranges are searched, come some 17 open files and
0.8 MB. So a few tasks are at work at a time. What a question waits for takes the place of a task that nobody asks for,
which keeps what was read of it on disk and goes on later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stateflow.scale.early.asks import Ask
from stateflow.scale.early.task import EarlyTask

TASKS_OPEN_MAX = 32


class OpenTasks:
    """Begins and rests the tasks of one attempt."""

    def __init__(self, tasks: Mapping[str, EarlyTask]) -> None:
        self._tasks = tasks

    def admit(self, asks: Sequence[Ask], busy: Iterable[EarlyTask]) -> None:
        """Have those begun that questions wait for, in their order, then as many others as there is room for.

        ``busy`` are tasks of which something is under way: they keep their places.
        """
        at_work = [task for task in self._tasks.values() if task.is_begun]
        asked = [self._tasks[ask.waits_for] for ask in asks]
        others = (task for task in self._tasks.values() if not task.is_done)
        wanted = dict.fromkeys(task for task in (*asked, *at_work, *others) if not task.is_done)
        chosen = list(wanted)[:TASKS_OPEN_MAX]
        held = {id(task) for task in (*busy, *chosen)}
        for task in at_work:
            if id(task) not in held:
                task.close()
        room = TASKS_OPEN_MAX - sum(task.is_begun for task in at_work)
        for task in [task for task in chosen if not task.is_begun][:room]:
            task.begin()
