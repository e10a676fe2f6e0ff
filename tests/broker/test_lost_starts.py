"""Starts of an application that has lost its committed positions, or its catalog, on a real broker."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from tests.broker.command_site import Site

pytestmark = pytest.mark.broker


def test_lost_positions_are_refused_until_somebody_chooses(site: Site) -> None:
    site.topic("in", "out")
    site.feed(range(50))
    assert site.drained().code == 0
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    for deleted in admin.delete_consumer_groups([site.name]).values():
        deleted.result()
    ended = site.type("run", site.digits, "--until-drained", "--json")
    assert ended.code == 24, ended.err
    assert sum(site.counted().values()) == 50
    assert site.type("reset", site.digits, "--to-earliest", "--yes").code == 0
    assert site.drained().code == 0
    assert sum(site.counted().values()) == 100, "as was chosen: all was read again"


def test_an_application_whose_catalog_is_gone_begins_anew_only_after_a_reset(site: Site) -> None:
    site.topic("in", "out")
    site.feed(range(50))
    assert site.drained().code == 0
    site.cluster.delete([f"{site.name}-control"])
    site.feed(range(50, 80))
    ended = site.drained()
    assert ended.code == 41, ended.err
    assert f"{site.name}-seen-changelog" in ended.err
    assert f"{site.name}-control" not in site.cluster.list_topics()
    assert site.type("reset", site.digits, "--yes").code == 0
    assert site.drained().code == 0
    assert sum(site.counted().values()) == 80


def test_doctor_and_run_name_a_setting_that_loses_event_time(site: Site) -> None:
    site.topic("in", "out")
    site.feed(range(10))
    assert site.drained().code == 0
    topic = f"{site.name}-by-digit-repartition"
    site.cluster.alter_topic_config(topic, {"message.timestamp.type": "LogAppendTime"})
    ended = site.drained()
    assert (ended.code, "message.timestamp.type=CreateTime" in ended.err) == (2, True), ended.err
    assert topic in site.type("doctor", site.digits).out
    site.cluster.alter_topic_config(topic, {"message.timestamp.type": "CreateTime"})
    assert site.drained().code == 0
