"""What hosted services allow: data with sources, kept to by every recommendation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.control.negotiate import recommend_allowed
from stateflow.compaction.model.streams import RateStep, Stream
from stateflow.compaction.sensing.effect import cautions
from stateflow.compaction.settings.cleanup import Cleanup
from stateflow.compaction.settings.knobs import knobs_for
from stateflow.compaction.settings.providers import PROVIDERS, TIERED, provider_named
from stateflow.compaction.settings.topic_settings import Policy
from stateflow.errors import ConfigError
from tests.sim.compaction_topic import SimulatedTopic, measurement

FOUND = measurement(Policy(), 4000.0, 10_000)


@pytest.fixture
def topic() -> SimulatedTopic:
    return SimulatedTopic(Stream(seconds=1, rates=(RateStep(0.0, 1.0),), keys=10), Policy())


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_every_provider_has_a_source_and_names_settings_that_exist(name: str) -> None:
    found, known = PROVIDERS[name], set(knobs_for())
    assert "https://" in found.source
    assert found.fixed <= known
    for settings in (found.ranges, found.tiered):
        assert set(settings) <= known
        assert all(low <= high for low, high in settings.values())


@pytest.mark.parametrize("name", sorted(PROVIDERS))
@pytest.mark.parametrize("release", [(3, 9), (4, 3), (5, 0)])
def test_a_provider_narrows_what_a_release_allows_and_never_widens_it(
    name: str, release: tuple[int, int]
) -> None:
    plain, narrowed = knobs_for(release), knobs_for(release, name + TIERED)
    for knob in plain.values():
        assert knob.low <= narrowed[knob.name].low <= narrowed[knob.name].high <= knob.high


@pytest.mark.parametrize("name", ["msk-serverless", "azure-event-hubs"])
def test_a_service_where_nothing_can_be_set_is_refused_with_its_source(
    topic: SimulatedTopic, name: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        recommend_allowed(topic, FOUND, Objective(5.0), provider=name)
    assert "https://" in caught.value.action


def test_tiered_topics_keep_their_least_segments(topic: SimulatedTopic) -> None:
    tiered = replace(FOUND, cleanup=Cleanup("compact", tiered=True))
    free = recommend_allowed(topic, FOUND, Objective(1.0), provider="msk")
    kept = recommend_allowed(topic, tiered, Objective(1.0), provider="msk")
    assert free.best.policy.segment_bytes < 50_331_648
    assert kept.ranges["segment.bytes"][0] == 50_331_648
    assert kept.ranges["segment.ms"][0] == 600_000
    for name, value in kept.changes.items():
        low, high = kept.ranges[name]
        assert low <= float(value) <= high, name
    assert "remote storage" in cautions(tiered)[0]


def test_an_unknown_provider_is_told_the_known_ones() -> None:
    with pytest.raises(ConfigError) as caught:
        provider_named("nobody")
    assert "msk-serverless" in caught.value.action
