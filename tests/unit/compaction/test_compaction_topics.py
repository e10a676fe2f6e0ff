"""Which changelogs `compaction --app` takes: those of the catalog's active generation, and no one else's."""

from __future__ import annotations

import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import GenerationEntry
from stateflow.catalog.names import control_topic
from stateflow.clock import ManualClock
from stateflow.compaction.cluster.which_topics import TopicRole, changelogs_of, is_ours, role_of
from stateflow.errors import CatalogMissing
from stateflow.lab.applications.written import WrittenApp
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.routing import RoutingTable
from stateflow.scale.engine import InProcess
from stateflow.scale.start import start

OWN = ["shop-hourly-changelog", "shop-recent-changelog", "shop-totals-changelog"]


@pytest.fixture
def cluster() -> MemoryCluster:
    """Two applications, the id of one the beginning of the other's; and changelogs of a third that is no one's."""
    cluster = MemoryCluster()
    for app in ("shop", "shop-eu"):
        WrittenApp(cluster, app, RoutingTable.modulo(2)).create()
    cluster.create([TopicSpec("shop-stray-changelog", 1), TopicSpec("orders-KSTREAM-1-changelog", 1)])
    return cluster


def test_another_application_whose_id_begins_alike_is_left_alone(cluster: MemoryCluster) -> None:
    assert changelogs_of(cluster, "shop") == OWN
    assert changelogs_of(cluster, "shop-eu") == [name.replace("shop-", "shop-eu-") for name in OWN]


def test_retired_generations_are_left_alone(cluster: MemoryCluster) -> None:
    start(cluster, "shop", RoutingTable.modulo(3).entry(), InProcess(cluster), ManualClock())
    assert changelogs_of(cluster, "shop") == [f"{name}-g1" for name in OWN]
    assert set(OWN) <= set(cluster.list_topics()), "they are there until `scale finalize`"


def test_what_a_topic_is_to_an_application_is_told(cluster: MemoryCluster) -> None:
    assert role_of(cluster, OWN[0]).kind == "changelog"
    assert role_of(cluster, "shop-eu-totals-changelog").app == "shop-eu"
    assert role_of(cluster, "shop-stray-changelog") == TopicRole()
    clock = ManualClock(1_000_000)
    start(cluster, "shop", RoutingTable.modulo(3).entry(), InProcess(cluster), clock)
    assert role_of(cluster, OWN[0]) == TopicRole("retired", "shop")
    assert not is_ours(cluster, OWN[0]), "nothing restores from it: a touch would be in vain"
    now = role_of(cluster, f"{OWN[0]}-g1")
    assert (now.kind, now.app) == ("changelog", "shop")
    assert now.copied_until_ms >= 1_000_000


def test_a_topic_that_a_repartition_is_filling_is_told(cluster: MemoryCluster) -> None:
    entry = GenerationEntry(generation=1, state="preparing", routing=RoutingTable.modulo(3).entry())
    ControlTopic(cluster, "shop").write_generations([entry])
    assert role_of(cluster, f"{OWN[0]}-g1") == TopicRole("filling", "shop")
    assert role_of(cluster, OWN[0]).kind == "changelog"


def test_an_application_without_a_catalog_is_told_what_may_be_meant(cluster: MemoryCluster) -> None:
    with pytest.raises(CatalogMissing) as caught:
        changelogs_of(cluster, "orders")
    assert "--topic orders-KSTREAM-1-changelog" in caught.value.action
    assert "or you may not see it" in caught.value.message
    cluster.create(
        [TopicSpec("sh-a-changelog", 1), TopicSpec("sh-op-b-changelog", 1), TopicSpec("sh-op-control", 1)]
    )
    with pytest.raises(CatalogMissing) as caught:
        changelogs_of(cluster, "sh")
    assert caught.value.fields["topics"] == ["sh-a-changelog"]


def test_only_what_a_catalog_names_may_be_touched(cluster: MemoryCluster) -> None:
    assert is_ours(cluster, "shop-totals-changelog")
    assert is_ours(cluster, "shop-eu-totals-changelog")
    assert not is_ours(cluster, "shop-stray-changelog")
    assert not is_ours(cluster, "orders-KSTREAM-1-changelog")
    assert not is_ours(cluster, "shop-by-key-repartition")


def test_a_catalog_that_cannot_be_read_names_nothing(cluster: MemoryCluster) -> None:
    writer = cluster.writer()
    writer.begin()
    writer.send(control_topic("shop"), b"app", b"\xff\xfe", partition=0)
    writer.commit()
    assert not is_ours(cluster, "shop-totals-changelog")
    assert is_ours(cluster, "shop-eu-totals-changelog")
