"""`stateflow workers`: who runs what, also without standby copies."""

from __future__ import annotations

import json

import pytest

from tests.broker.command_site import Site

pytestmark = pytest.mark.broker


def test_workers_without_standby_copies_are_shown_with_their_tasks(site: Site) -> None:
    site.topic("in", "out")
    site.feed([1])
    assert site.drained().code == 0
    assert "no worker of" in site.type("workers", "--app", site.name).out
    run = site.begin("run", site.digits)
    try:
        run.until("task by-digit-0 is running")
        (member,) = json.loads(site.type("workers", "--app", site.name, "--json").out)["members"]
        assert member["tasks"] == ["by-digit-0", f"{site.name}-in-0"]
        assert member["host"]
        shown = site.type("workers", "--app", site.name).out
        assert "by-digit-0" in shown
        assert member["worker"] in shown
    finally:
        run.close()
