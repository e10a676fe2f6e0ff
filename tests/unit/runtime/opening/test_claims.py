"""The claims log: who may have written for a task, in order, and what is left of it once nobody need be fenced."""

from __future__ import annotations

from contextlib import closing

import pytest

from stateflow.catalog.names import claims_topic, control_topic
from stateflow.clock import ManualClock
from stateflow.errors import CatalogIncompatible, ProducerFenced, TopicMissing
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.log.transactions import LastTransaction
from stateflow.record import TopicPartition
from stateflow.runtime.opening.claims import ClaimsLog, fenced_claims

APP = "shop"


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(ManualClock(1_000_000))


def made(cluster: MemoryCluster) -> ClaimsLog:
    log = ClaimsLog(cluster, APP, ManualClock(1_000_000))
    log.create([])
    return log


def test_claims_are_found_in_their_order_by_whoever_reads_later(cluster: MemoryCluster) -> None:
    with closing(made(cluster)) as first, closing(made(cluster)) as second:
        claims = [first.claim("t-0", "a"), second.claim("t-0", "b"), first.claim("t-1", "a")]
        assert second.read().of("t-0") == claims[:2]
        assert first.read().of("t-1") == [claims[2]]
        assert first.read().writers == ["a", "b"]
        assert [claim.offset for claim in claims] == [0, 1, 2]


def test_removing_a_claim_leaves_another_of_the_same_writer_and_task(cluster: MemoryCluster) -> None:
    """A tombstone that comes late, or the cleaner, must not remove the claim that holds."""
    with closing(made(cluster)) as log:
        before, again = log.claim("t-0", "a"), log.claim("t-0", "a")
        log.remove([before.key])
        cluster.compact(claims_topic(APP))
        assert log.read().of("t-0") == [again]
    with closing(made(cluster)) as fresh:
        assert fresh.read().of("t-0") == [again]


def test_what_a_coordinator_said_is_kept_until_nobody_claims_by_that_writer(cluster: MemoryCluster) -> None:
    last = LastTransaction("open", frozenset({TopicPartition("out", 1), TopicPartition("out", 0)}), False)
    with closing(made(cluster)) as log:
        one, other = log.claim("t-0", "a"), log.claim("t-1", "a")
        log.note_outcome("a", last)
        found = log.read()
        assert found.outcomes == {"a": last}
        assert found.outdated_outcomes([one.key]) == []
        outdated = found.outdated_outcomes([one.key, other.key])
        log.remove([one.key, other.key, *outdated])
        assert log.read().outcomes == {}
        assert log.read().by_key == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"not json", b"{}"),
        (b'["claim","t-0","a"]', b"{}"),
        (b'["claim",1,"a",0]', b"{}"),
        (b'["outcome","a"]', b'{"outcome":"?"}'),
        (b'["outcome","a"]', b"\xff\xfe"),
        (b'["outcome","a"]', b'{"more":' + b"[" * 100_000),
        (b'["outcome","\xff"]', b"{}"),
        (b'["later","a"]', b"{}"),
    ],
)
def test_what_is_not_understood_opens_no_task(cluster: MemoryCluster, key: bytes, value: bytes) -> None:
    with closing(made(cluster)) as log:
        writer = cluster.writer()
        writer.send(claims_topic(APP), key, value, partition=0)
        writer.commit()
        with pytest.raises(CatalogIncompatible, match="offset 0"):
            log.read()


def test_a_log_that_is_gone_is_not_taken_for_an_empty_one(cluster: MemoryCluster) -> None:
    with closing(made(cluster)) as log:
        log.claim("t-0", "a")
        cluster.delete([claims_topic(APP)])
        with pytest.raises(TopicMissing, match="which writers must be fenced"):
            log.read()


def test_the_log_is_replicated_like_the_best_of_the_topics_beside_it(cluster: MemoryCluster) -> None:
    cluster.create([TopicSpec(control_topic(APP), 1, 1), TopicSpec("counts", 4, 3)])
    with closing(ClaimsLog(cluster, APP, ManualClock(0))) as log:
        log.create(["counts"])
    assert cluster.describe([claims_topic(APP)])[claims_topic(APP)].replication == 3


def test_an_application_at_rest_is_fenced_as_a_whole(cluster: MemoryCluster) -> None:
    cluster.create([TopicSpec("out", 1)])
    writers = [cluster.writer(name) for name in ("a", "b")]
    with closing(made(cluster)) as log:
        for writer, name in zip(writers, "ab", strict=True):
            log.claim("t-0", name)
            writer.begin()
            writer.send("out", b"k", b"v", partition=0)
        log.note_outcome("a", LastTransaction("committed"))
        with fenced_claims(cluster, APP, ManualClock(0)) as by_task:
            for writer in writers:
                with pytest.raises(ProducerFenced):
                    writer.commit()
            assert len(log.read().by_key) == 2
        assert by_task["t-0"].keys() == {"a", "b"}
        assert log.read().by_key == {}
        assert log.read().outcomes == {}


def test_an_application_that_never_shared_writers_has_nothing_to_fence(cluster: MemoryCluster) -> None:
    with fenced_claims(cluster, APP, ManualClock(0)) as by_task:
        assert by_task == {}
    assert cluster.list_topics() == []
