"""Settings of own topics under which records or their times would be lost are refused, others are not."""

from __future__ import annotations

import pytest

from stateflow.errors import TopicSettingsUnfit
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.runtime.worker.own_topics import CHANGELOG_CONFIG, REPARTITION_CONFIG
from tests.sim.test_topic_ownership import CHANGELOG, REPARTITION, STORE, start

LOSING = [
    (REPARTITION, {"message.timestamp.type": "LogAppendTime"}),
    (REPARTITION, {"cleanup.policy": "compact"}),
    (REPARTITION, {"cleanup.policy": "compact,delete"}),
    (REPARTITION, {"retention.ms": "604800000"}),
    (REPARTITION, {"retention.bytes": "1000"}),
    (CHANGELOG, {"cleanup.policy": "delete", "retention.ms": "60000"}),
    (CHANGELOG, {"cleanup.policy": "compact,delete", "retention.bytes": "1000", "retention.ms": "-1"}),
]
HARMLESS = [
    (REPARTITION, {"segment.bytes": "1000000", "message.timestamp.after.max.ms": "3600000"}),
    (CHANGELOG, {"cleanup.policy": "compact", "retention.ms": "60000", "min.cleanable.dirty.ratio": "0.1"}),
    (CHANGELOG, {"cleanup.policy": "compact,delete", "retention.ms": "-1"}),
    (CHANGELOG, {"message.timestamp.type": "CreateTime"}),
]
CONFIGS = {REPARTITION: REPARTITION_CONFIG, CHANGELOG: CHANGELOG_CONFIG}


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create([TopicSpec("words", 2)])
    return made


@pytest.mark.parametrize("by_hand", [True, False], ids=["made by hand", "changed"])
@pytest.mark.parametrize(("topic", "settings"), LOSING)
def test_what_loses_something_is_refused_with_the_cure(
    cluster: MemoryCluster, topic: str, settings: dict[str, str], by_hand: bool
) -> None:
    if by_hand:
        cluster.create([TopicSpec(topic, 1, 1, {**CONFIGS[topic], **settings})])
    else:
        start(cluster, STORE)
        cluster.alter_topic_config(topic, settings)
    with pytest.raises(TopicSettingsUnfit, match=topic) as told:
        start(cluster, STORE)
    assert f"--topic {topic} --add-config" in told.value.action
    cure = told.value.action.split("--add-config ")[1].split("`")[0]
    changes = dict(setting.split("=") for setting in cure.split(","))
    cluster.alter_topic_config(topic, changes)
    start(cluster, STORE)


@pytest.mark.parametrize(("topic", "settings"), HARMLESS)
def test_what_loses_nothing_is_taken(cluster: MemoryCluster, topic: str, settings: dict[str, str]) -> None:
    start(cluster, STORE)
    cluster.alter_topic_config(topic, settings)
    assert start(cluster, STORE).catalog.active.topic_ids[topic]


def test_own_repartition_topics_take_any_event_time(cluster: MemoryCluster) -> None:
    start(cluster, STORE)
    config = cluster.topic_config(REPARTITION)
    assert (
        config["message.timestamp.after.max.ms"]
        == config["message.timestamp.before.max.ms"]
        == str(2**63 - 1)
    )
