"""A worker process that makes images of its state, is killed, loses its disk, and begins anew with an image."""

from __future__ import annotations

import json
import shutil
import signal

import pytest

from stateflow.checkpoint.objects import DirectoryObjects
from tests.broker.command_site import Site
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


def test_a_worker_killed_with_its_disk_begins_with_an_image(site: Site) -> None:
    site.topic("in", "out")
    place = site.place / "images"
    site.set(
        STATEFLOW_IMAGES=str(place),
        STATEFLOW_IMAGE_INTERVAL_SECONDS="0.5",
        STATEFLOW_FLUSH_INTERVAL_SECONDS="0.2",
        STATEFLOW_IMAGES_KEPT="2",
    )
    folder = f"{site.name}/g0/by-digit-0/manifests"
    site.feed(range(100))
    worker = site.begin("run", site.digits)
    try:
        wait_until(
            lambda: bool(list(DirectoryObjects(place).list(folder))), lambda: f"images in:\n{worker.said}"
        )
        site.feed(range(100))
        wait_until(
            lambda: site.counted() == dict.fromkeys(range(10), 20), lambda: f"counts in:\n{worker.said}"
        )
        worker.send(signal.SIGKILL)
        assert worker.ended() == -signal.SIGKILL
    finally:
        worker.close()
    assert json.loads(site.type("checkpoint", "verify", "--all", "--app", site.name, "--json").out)[
        "verified"
    ]

    shutil.rmtree(site.state)
    planned = site.type("restore", "--app", site.name, "--dry-run", "--json")
    (row,) = json.loads(planned.out)["plan"]
    assert row["action"] in ("reuse", "tail"), planned.out
    assert row["image"].startswith(folder)

    site.feed(range(200))
    ended = site.begin("run", site.digits, "--until-drained", "--verbose")
    try:
        assert ended.ended() == 0, ended.said
    finally:
        ended.close()
    assert f"the image {folder}" in ended.said
    assert site.counted() == dict.fromkeys(range(10), 40)
