"""Two worker processes with disks of their own on a real broker: the one that runs a task dies or hangs, the other has
a copy and goes on with it.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any

import pytest

from tests.broker.command_site import Process, Site
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

TASK = "by-digit-0"
RESTORED = re.compile(rf"Task {TASK} was restored in [\d.]+ s: (\d+) records read")


class Pair:
    """Workers ``a`` and ``b`` of one application, each with a state directory and a log of its own."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.running = {name: self.begin(name) for name in "ab"}

    def begin(self, name: str) -> Process:
        """Start a worker."""
        state = str(self.site.place / name)
        options = ("--standby", "1", "--state-dir", state, "--name", name, "--verbose")
        return Process(self.site.command("run", self.site.digits, *options), self.site.place / f"{name}.txt")

    def told(self) -> dict[str, Any]:
        """What `stateflow workers` shows."""
        found: dict[str, Any] = json.loads(self.site.type("workers", "--app", self.site.name, "--json").out)
        return found

    def states(self) -> dict[str, tuple[str, int | None]]:
        """Worker → state and lag of what it has of the task."""
        return {
            str(row["worker"])[-1]: (row["state"], row["lag_slots"])
            for row in self.told()["copies"]
            if row["task"] == TASK
        }

    def settle(self) -> tuple[str, str]:
        """Wait until one runs the task and the other has a copy that has caught up; returns their names.

        A rebalance that refuses a commit on its way has the task opened again, by the same worker: for a moment it is
        ``starting`` once more.
        """
        found: dict[tuple[str, int | None], str] = {}

        def settled() -> bool:
            found.clear()
            found.update((state, name) for name, state in self.states().items())
            return found.keys() == {("following", 0), ("running", 0)}

        wait_until(settled, lambda: f"a copy that has caught up; {self.states()}\n{self.said}")
        return found["running", 0], found["following", 0]

    @property
    def said(self) -> str:
        """Both logs."""
        return "\n".join(f"{name}:\n{process.said}" for name, process in self.running.items())

    def close(self) -> None:
        """Kill what still runs."""
        for process in self.running.values():
            process.close()


@contextmanager
def running_pair(site: Site) -> Iterator[Pair]:
    """Two workers, gone at the end."""
    site.topic("in", "out")
    pair = Pair(site)
    try:
        for _ in range(20):  # in many commits, so that the changelog is long
            site.feed(range(200))
            time.sleep(0.1)
        yield pair
    finally:
        pair.close()


def counted(site: Site, times: int) -> bool:
    """Every digit was counted so often, and no count was put out twice or ran backwards."""
    found: dict[bytes, list[int]] = defaultdict(list)
    for record in site.records("out"):
        assert record.key is not None
        found[record.key].append(json.loads(record.value))
    assert all(counts == sorted(set(counts)) for counts in found.values()), found
    assert all(counts[-1] <= times for counts in found.values()), found
    return site.counted() == dict.fromkeys(range(10), times)


def test_a_killed_worker_is_followed_by_its_copy_which_reads_next_to_nothing(site: Site) -> None:
    with running_pair(site) as pair:
        wait_until(lambda: counted(site, 400), lambda: f"the first counts in\n{pair.said}")
        active, copier = pair.settle()
        survivor = pair.running[copier]
        pair.running[active].send(signal.SIGKILL)
        assert pair.running[active].ended() == -signal.SIGKILL
        shutil.rmtree(site.place / active)
        site.feed(range(100))
        survivor.until(f"Task {TASK}: its standby copy is promoted")
        wait_until(lambda: counted(site, 410), lambda: f"the counts after it in\n{pair.said}")
        read = [int(records) for records in RESTORED.findall(survivor.said)]
        assert len(read) == 1
        written = len(site.records("seen-changelog"))
        assert read[0] <= written / 10, f"{read[0]} of the {written} records of the changelog"

        pair.running[active] = pair.begin(active)
        assert pair.settle() == (copier, active), "who runs the task keeps it; the other copies it again"
        rows = (
            rf"{TASK} +{site.name}-{copier} .* running +0 ",
            rf"{TASK} +{site.name}-{active} .* following +0 ",
        )

        def shown() -> str:
            return site.type("workers", "--app", site.name).out

        wait_until(lambda: all(map(re.search, rows, repeat(shown()))), shown)


def test_a_worker_that_hangs_finds_its_copy_in_charge_when_it_wakes_up(site: Site) -> None:
    with running_pair(site) as pair:
        wait_until(lambda: counted(site, 400), lambda: f"the first counts in\n{pair.said}")
        active, copier = pair.settle()
        zombie = pair.running[active]
        zombie.send(signal.SIGSTOP)
        pair.running[copier].until(f"Task {TASK}: its standby copy is promoted")
        site.feed(range(100))
        wait_until(lambda: counted(site, 410), lambda: f"the counts after it in\n{pair.said}")
        zombie.send(signal.SIGCONT)
        site.feed(range(100))
        wait_until(lambda: counted(site, 420), lambda: f"the counts after that in\n{pair.said}")
        wait_until(lambda: pair.states()[copier] == ("running", 0), lambda: f"{pair.states()}\n{pair.said}")
