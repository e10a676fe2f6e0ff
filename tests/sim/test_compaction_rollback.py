"""Rolling back is exact: values are compared as the numbers they are, whatever texts a broker answers with."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.advice.recommend import recommend
from stateflow.compaction.control.change import apply, change, rollback
from stateflow.compaction.control.journal import Journal
from stateflow.compaction.model.streams import RateStep, Stream
from stateflow.compaction.settings.knobs import NEVER_MS
from stateflow.compaction.settings.topic_settings import Policy
from stateflow.errors import ConfigError, DiskFull
from stateflow.log.kafka.in_force import same_value
from tests.sim.compaction_topic import SimulatedTopic, measurement

RATIO = "min.cleanable.dirty.ratio"


@pytest.fixture
def topic() -> SimulatedTopic:
    return SimulatedTopic(Stream(seconds=1, rates=(RateStep(0.0, 1.0),), keys=10), Policy())


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal("sim", tmp_path)


@pytest.mark.parametrize("value", ["0", "0.10", "1", "1e-4"])
def test_a_ratio_that_the_broker_writes_otherwise_is_nobodys_change(
    topic: SimulatedTopic, journal: Journal, value: str
) -> None:
    change(topic, "t", {RATIO: value, "segment.ms": "5000"}, journal)
    assert topic.overrides[RATIO] != value
    undone = rollback(topic, "t", journal)
    assert undone.changes == {RATIO: None, "segment.ms": None}
    assert topic.overrides == {}


def test_what_already_stands_is_not_set_again(topic: SimulatedTopic, journal: Journal) -> None:
    change(topic, "t", {RATIO: "0"}, journal)
    again = change(topic, "t", {RATIO: "0"}, journal)
    assert again.changes == {}
    assert len(journal.entries("t")) == 1


def test_rolling_back_puts_an_operators_own_value_back(topic: SimulatedTopic, journal: Journal) -> None:
    topic.alter_topic("t", {RATIO: "0", "segment.ms": "7000"})
    before = dict(topic.overrides)
    change(topic, "t", {RATIO: "0.25", "segment.ms": "100", "segment.bytes": "2097152"}, journal)
    rollback(topic, "t", journal)
    assert topic.overrides == before


def test_a_real_change_of_somebody_else_is_named_with_both_values(
    topic: SimulatedTopic, journal: Journal
) -> None:
    change(topic, "t", {RATIO: "0", "segment.ms": "5000"}, journal)
    topic.alter_topic("t", {RATIO: "0.3"})
    with pytest.raises(ConfigError) as caught:
        rollback(topic, "t", journal)
    assert f"{RATIO} (set to 0, now 0.3)" in caught.value.message
    assert "segment.ms" not in caught.value.message
    assert topic.overrides[RATIO] == "0.3"


@given(st.integers(0, NEVER_MS), st.integers(0, NEVER_MS))
def test_whole_numbers_are_alike_only_when_they_are_equal(one: int, other: int) -> None:
    assert same_value(str(one), str(other)) == (one == other)
    assert same_value(str(one), f"{one}.0")


def test_neighbours_beyond_the_precision_of_a_float_differ() -> None:
    assert not same_value(str(NEVER_MS), str(NEVER_MS - 1))


@given(st.floats(0, 1))
def test_a_ratio_is_alike_however_it_is_written(ratio: float) -> None:
    assert same_value(repr(ratio), f"{ratio!r}".upper())
    assert same_value(f"{ratio:e}", str(float(f"{ratio:e}")))


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (None, None, True),
        (None, "0", False),
        ("0", None, False),
        ("lz4", "lz4", True),
        ("lz4", "zstd", False),
    ],
)
def test_texts_and_missing_overrides(one: str | None, other: str | None, alike: bool) -> None:
    assert same_value(one, other) is alike


def test_a_journal_that_cannot_be_written_leaves_the_topic_as_it_was(
    topic: SimulatedTopic, tmp_path: Path
) -> None:
    (tmp_path / "home").write_text("a file, where a directory should be")
    journal = Journal("sim", tmp_path / "home")
    found = recommend(measurement(Policy(), 1000.0, 1000), objective=Objective(1.0))
    assert found.reachable
    assert found.changes
    with pytest.raises(ConfigError) as caught:
        apply(topic, found, journal)
    assert "Nothing of t was changed" in caught.value.message
    assert "STATEFLOW_HOME" in caught.value.action
    assert topic.overrides == {}


def test_with_a_full_disk_nothing_is_undone(topic: SimulatedTopic, tmp_path: Path) -> None:
    journal = Journal("sim", tmp_path / "home")
    change(topic, "t", {"segment.ms": "5000"}, journal)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # which root meets, too
    try:
        with pytest.raises(DiskFull, match="Nothing of t was changed"):
            rollback(topic, "t", journal)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert topic.overrides == {"segment.ms": "5000"}
    assert [path.suffix for path in journal.path("t").parent.iterdir()] == [".json"], "no rest of the attempt"


def test_a_change_that_cannot_be_noted_as_undone_is_not_undone(topic: SimulatedTopic, tmp_path: Path) -> None:
    journal = Journal("sim", tmp_path / "home")
    change(topic, "t", {"segment.ms": "5000"}, journal)
    folder = journal.path("t").parent
    folder.chmod(0o500)
    try:
        if os.access(folder, os.W_OK):
            pytest.skip("this user may write everywhere")
        with pytest.raises(ConfigError, match="Nothing of t was changed"):
            rollback(topic, "t", journal)
    finally:
        folder.chmod(0o700)
    assert topic.overrides == {"segment.ms": "5000"}
