"""Supervisors of one application on two machines: their workers are members side by side, none puts out another."""

from __future__ import annotations

import signal
from collections.abc import Collection

import pytest

from tests.broker.command_site import Process, Site
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


def members(site: Site) -> Collection[str]:
    return site.cluster.group_members(site.name)


@pytest.mark.parametrize("naming", [[], ["--name"]])
def test_workers_of_two_supervisors_run_side_by_side(site: Site, naming: list[str]) -> None:
    site.topic("in", "out")
    machines: list[Process] = []
    try:
        for machine in ("east", "west"):
            options = [*naming, machine] if naming else []
            command = site.command("run", site.digits, "--workers", "2", *options)
            where = ["--state-dir", str(site.place / machine)]
            machines.append(Process([*command, *where], site.place / f"{machine}.txt"))

        def said() -> str:
            return "\n".join(each.said for each in machines)

        wait_until(lambda: len(members(site)) == 4, said)
        site.feed([1, 11])
        wait_until(lambda: site.counted() == {1: 2}, said)
        assert len(members(site)) == 4
        for each in machines:
            each.still_runs()
            each.send(signal.SIGTERM)
        assert [each.ended() for each in machines] == [0, 0], said()
        assert "starting it again" not in said()
        if naming:
            assert {member.rpartition(f"{site.name}-")[2][:7] for member in members(site)} == {
                "east-w0",
                "east-w1",
                "west-w0",
                "west-w1",
            }
    finally:
        for each in machines:
            each.close()


def test_a_restart_with_the_same_disk_keeps_the_names(site: Site) -> None:
    site.topic("in", "out")
    lives = [names_of_a_life(site) for _ in range(2)]
    assert lives[0] == lives[1]
    assert len(lives[0]) == 2


def names_of_a_life(site: Site) -> set[str]:
    """What the members are called while two workers run."""
    run = site.begin("run", site.digits, "--workers", "2")
    try:
        run.until("task by-digit-0 is running")
        wait_until(lambda: len(members(site)) == 2, lambda: run.said)
        run.send(signal.SIGTERM)
        assert run.ended() == 0
    finally:
        run.close()
    return {member[: -len("-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")] for member in members(site)}
