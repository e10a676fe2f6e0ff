"""Several transactions open in one partition: what hides what, and until when."""

from __future__ import annotations

import pytest

from stateflow.errors import ProducerFenced
from stateflow.record import TopicPartition
from tests.conformance.log_world import World


def test_the_oldest_open_transaction_hides_what_others_commit_in_its_partition(world: World) -> None:
    """Whoever wants to see everything that is decided asks for the end of the log, and fences who is open there."""
    topic, first_id = world.topic(), world.name("first")
    place = TopicPartition(topic, 0)
    first = world.open_transaction(topic, first_id, b"of the first")
    stable = world.stable_end(place)
    second = world.open_transaction(topic, world.name("second"), b"of the second")
    assert world.stable_end(place) == stable, "both are open, the older one counts"
    second.commit()
    second.close()
    assert world.stable_end(place) == stable < world.log_end(place)
    assert b"of the second" not in world.values(topic, settled=False)
    world.cluster.writer(first_id).close()
    assert world.stable_end(place) == world.log_end(place), "on return of the fence all is decided"
    assert set(world.values(topic)) == {b"of the second", b"probe"}
    with pytest.raises(ProducerFenced):
        first.commit()
    first.close()


def test_an_open_transaction_is_between_the_two_ends(world: World) -> None:
    topic, empty = world.topic(), world.topic()
    places = [TopicPartition(topic, 0), TopicPartition(empty, 0)]
    writer = world.open_transaction(topic, world.name("tx"))
    stable, whole = world.cluster.ends(places), world.cluster.ends(places, stable=False)
    assert stable[places[0]] < whole[places[0]]
    assert stable[places[1]] == whole[places[1]] == 0
    for ends, is_stable in ((stable, True), (whole, False)):
        ranges = world.cluster.ranges(places, stable=is_stable)
        assert ends == {place: found.offset_next for place, found in ranges.items()}
    assert world.cluster.ends([]) == {}
    writer.commit()
    world.until(lambda: world.cluster.ends(places) == world.cluster.ends(places, stable=False))
    writer.close()
