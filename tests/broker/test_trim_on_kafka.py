"""Image + trim on a real broker: a worker bounds its changelog by images, dies with its disk, and begins with an image.

Then the images are lost as well, and everybody says so instead of going on with an empty state.
"""

from __future__ import annotations

import json
import shutil
import signal

import pytest

from stateflow.errors import ChangelogTrimmed
from stateflow.record import TopicPartition
from tests.broker.command_site import Site
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


def test_a_changelog_is_bounded_by_images_and_lost_with_all_of_them(site: Site) -> None:
    site.topic("in", "out")
    images = site.place / "images"
    site.set(
        STATEFLOW_IMAGES=str(images),
        STATEFLOW_TRIM="true",
        STATEFLOW_IMAGES_PROMISED="1",
        STATEFLOW_IMAGE_INTERVAL_SECONDS="0.3",
        STATEFLOW_FLUSH_INTERVAL_SECONDS="0.2",
    )
    changelog = TopicPartition(f"{site.name}-seen-changelog", 0)
    there = {changelog.topic}
    site.feed(range(100))
    worker = site.begin("run", site.digits)
    try:
        wait_until(
            lambda: (
                changelog.topic in site.cluster.describe(there)
                and site.cluster.ranges([changelog])[changelog].offset_first > 0
            ),
            lambda: f"a trimmed changelog ({site.cluster.ranges([changelog])}) in:\n{worker.said}",
        )
        site.feed(range(100))
        wait_until(
            lambda: site.counted() == dict.fromkeys(range(10), 20), lambda: f"counts in:\n{worker.said}"
        )
        worker.send(signal.SIGKILL)
        assert worker.ended() == -signal.SIGKILL
    finally:
        worker.close()
    config = site.cluster.topic_config(changelog.topic)
    assert sorted(config["cleanup.policy"].split(",")) == ["compact", "delete"]
    assert config["retention.ms"] == "-1"

    site.cluster.alter_topic_config(changelog.topic, {"retention.ms": "86400000"})
    told = json.loads(site.type("topics", "apply", site.digits, "--dry-run", "--json").out)[-1]
    assert told == {"topic": changelog.topic, "settings": {"retention.ms": "-1"}}
    assert "needs" not in site.type("topics", "apply", site.digits).out
    assert site.cluster.topic_config(changelog.topic)["retention.ms"] == "-1"

    shutil.rmtree(site.state)
    listed = json.loads(site.type("checkpoint", "list", "--app", site.name, "--json").out)["images"]
    assert any(row["safe"] and row["refused"] is None for row in listed)
    planned = json.loads(site.type("restore", "--app", site.name, "--dry-run", "--json").out)["plan"]
    assert [row["image"] is not None for row in planned] == [True]
    site.feed(range(200))
    ended = site.drained()
    assert ended.code == 0, ended.err
    assert site.counted() == dict.fromkeys(range(10), 40)

    shown = json.loads(site.type("checkpoint", "trim", "--app", site.name, "--dry-run", "--json").out)
    assert [row["store"] for row in shown["would_delete"]] == ["seen"]
    shutil.rmtree(images)
    shutil.rmtree(site.state)
    told = site.type("restore", "--app", site.name, "--dry-run")
    assert told.code == ChangelogTrimmed.exit_code
    assert "cannot be restored" in told.out
    assert "There is no image of this task" in told.err
    site.feed(range(10))  # with nothing to do it would end before it opens a task
    assert site.drained().code == ChangelogTrimmed.exit_code
    assert not (site.state / site.name / "g0" / "by-digit-0" / "db").exists(), "no empty state was begun"
