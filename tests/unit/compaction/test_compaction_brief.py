"""What `stateflow compaction` says of a recommendation: ten lines, in units for people, with what it does beside."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateflow.cli.compaction_brief import LINES_MAX, SUMMARY_HEADER, Advice, brief, details, summary
from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.advice.recommend import recommend
from stateflow.compaction.advice.side_effects import Footprint, SideEffects, side_effects
from stateflow.compaction.cluster.neighbours import Neighbours
from stateflow.compaction.cluster.which_topics import TopicRole
from stateflow.compaction.model.workload import RestoreRate
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.cleanup import Cleanup
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy
from stateflow.compaction.settings.units import cores, duration, size

AROUND = Neighbours(12, 5 << 30)
BUSY = Measurement.known(
    "orders-changelog",
    live_keys=10_000,
    updates_per_second=4000,
    record_bytes=571,
    restore=RestoreRate(100_000, 0.0, "given", 0.1),
    cleaner=CleanerSettings(backoff_ms=100),
    partitions=4,
)


def advise(found: Measurement, seconds: float, around: Neighbours | None = AROUND) -> Advice:
    chosen = recommend(found, objective=Objective(seconds))
    return Advice(found, chosen, side_effects(found, chosen, around))


def said(advice: Advice) -> str:
    return "\n".join(brief(advice))


def test_a_brief_says_what_to_set_what_it_does_what_it_costs_and_what_would_change_it() -> None:
    text = said(advise(BUSY, 0.5))
    assert "restore within 500 ms: holds when set so" in text
    for name in ("now", "set", "gives", "costs", "limits", "-v"):
        assert f"\n  {name} " in text, name
    assert "shared with 12 other topic(s)" in text


def test_a_brief_says_what_is_saved_beside_a_setting_by_hand_and_where_nothing_is() -> None:
    advice = advise(BUSY, 0.5)
    assert advice.found.hand_share is not None
    for share, told in (
        (0.31, "31 % of the best setting by hand"),
        (0.97, "no less than the best setting by hand"),
    ):
        assert told in said(replace(advice, found=replace(advice.found, hand_share=share)))
    assert "by hand" not in said(replace(advice, found=replace(advice.found, hand_share=None)))


@pytest.mark.parametrize(
    ("rate", "told"),
    [(60.0, " % with --broker-settings"), (20_000.0, "the broker's cleaner settings would save little")],
)
def test_a_brief_says_what_cleaner_settings_save_where_topic_settings_save_nothing(
    rate: float, told: str
) -> None:
    """On a stock broker topic settings save next to nothing; at a high rate of updates neither do the broker's."""
    stock = replace(BUSY, partitions=1, live_keys=1000, updates_per_second=rate, cleaner=CleanerSettings())
    seconds = stock.restore.seconds(1.2 * (1000 + 30 * rate))
    text = said(advise(stock, seconds))
    assert "of the best setting by hand" in text or "no less than the best setting by hand" in text
    assert told in text


def test_a_brief_says_what_a_busy_machine_may_make_of_a_bound_on_cpu() -> None:
    stock = replace(BUSY, partitions=1, live_keys=1000, updates_per_second=60.0, cleaner=CleanerSettings())
    wanted = Objective(stock.restore.seconds(30_000), cpu_cores_max=0.02)
    found = recommend(stock, objective=wanted)
    assert found.reachable
    text = said(Advice(stock, found, side_effects(stock, found, AROUND)))
    assert f"at most {cores(found.best.cores_at_most or 0)} on a busy machine" in text
    assert "for at most 2 % of a core: holds when set so" in text


@given(
    st.integers(0, 2_000_000),
    st.floats(0.0, 50_000),
    st.floats(0.01, 1000),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([Cleanup(), Cleanup("compact,delete", 60_000)]),
)
@settings(max_examples=15, deadline=None)
def test_no_brief_is_longer_than_ten_lines(
    keys: int, rate: float, seconds: float, replication: int, idle: bool, cleanup: Cleanup
) -> None:
    found = replace(
        BUSY,
        live_keys=keys,
        records=2 * keys,
        updates_per_second=rate,
        replication=replication,
        writes_seen=not idle,
        cleanup=cleanup,
        cleaners_known=False,
        cleaner=CleanerSettings(),
    )
    advice = advise(found, seconds)
    assert len(brief(advice)) <= LINES_MAX
    assert "inf" not in said(advice).replace("in force", "")


def test_what_cannot_be_met_shows_what_would_at_once() -> None:
    advice = advise(BUSY, 0.02)
    assert not advice.found.reachable
    text = said(advice)
    assert "compaction alone cannot meet it" in text
    assert "\n  or " in text
    assert "holds" not in text
    assert (
        f"with 1.25 times the rate and 1.05 times the keys {duration(advice.found.best.restore_seconds_stressed)}"
        in text
    )
    meeting = [other for other in advice.found.alternatives if other.meets]
    assert meeting[0].action in text


def test_nothing_holds_already_on_a_topic_that_nobody_writes() -> None:
    idle = replace(BUSY, writes_seen=False, role=TopicRole("changelog", "shop"))
    text = said(advise(idle, 0.5))
    assert "holds once records arrive" in text
    assert "  caution  Nobody wrote" in text


def test_what_is_in_force_and_best_is_said_to_stay() -> None:
    best = recommend(BUSY, objective=Objective(0.5)).best.policy
    text = said(advise(replace(BUSY, policy=best), 0.5))
    assert "holds as it is set now" in text
    assert "\n  set " not in text


def test_more_cautions_than_fit_are_counted_and_told_by_v() -> None:
    found = replace(BUSY, writes_seen=False, cleanup=Cleanup("compact,delete", 60_000), cleaners_known=False)
    advice = advise(found, 0.5)
    assert "and 1 more caution(s)" in brief(advice)[-1]
    assert any("may not be read" in line for line in details(advice))


def test_an_application_is_summed_up_as_restored_in_turn() -> None:
    small = replace(BUSY, topic="small-changelog", live_keys=1000)
    rows = list(summary([advise(BUSY, 0.5), advise(small, 0.5)], 1.0))
    assert all(len(row) == len(SUMMARY_HEADER) for row in rows)
    assert [row[0] for row in rows] == ["orders-changelog", "small-changelog", "all"]
    assert rows[-1][4].endswith(" of 1 s")
    assert {row[-1] for row in rows} == {"yes"}
    assert list(summary([advise(BUSY, 0.5), advise(small, 0.001)], 1.0))[-1][-1] == "no"


# --- side effects -----------------------------------------------------------------------------------------------


def test_every_replica_costs_its_broker_the_same() -> None:
    once, thrice = advise(BUSY, 0.5), advise(replace(BUSY, replication=3), 0.5)
    assert once.effects.then is not None
    assert thrice.effects.then is not None
    assert thrice.effects.then.cores == pytest.approx(3 * once.effects.then.cores)
    assert thrice.effects.then.files == pytest.approx(3 * once.effects.then.files)
    assert thrice.effects.then.busy == once.effects.then.busy, "each broker has a cleaner of its own"
    assert "3 times over" in " ".join(thrice.effects.sentences())
    assert "on each of 3 replicas" in said(thrice)


def test_short_segments_and_kept_files_are_counted() -> None:
    """A pass every few seconds leaves the files of a minute behind."""
    kept = advise(BUSY, 0.25)
    gone = advise(replace(BUSY, policy=Policy(file_delete_delay_ms=0)), 0.25)
    assert kept.effects.then is not None
    assert gone.effects.then is not None
    best = kept.found.best
    passes = 60 / best.cycle_seconds
    assert kept.effects.then.segments >= passes * best.segments_per_cycle
    assert gone.effects.then.segments < 10


def test_many_files_and_a_busy_cleaner_are_warned_of() -> None:
    quiet = Footprint(cores=0.1, segments=9, files=900, busy=0.1, turn_seconds=2, moved_bytes_per_second=1e6)
    effects = SideEffects(quiet, quiet, 1, AROUND, ())
    calm = " ".join(effects.sentences())
    assert "vm.max_map_count" not in calm
    assert "max-dirty-percent" not in calm
    loud = " ".join(replace(effects, then=replace(quiet, files=60_000, busy=0.5)).sentences())
    assert "vm.max_map_count" in loud
    assert "max-dirty-percent" in loud


def test_a_topic_that_is_never_cleaned_now_grows() -> None:
    never = replace(BUSY, policy=Policy(dirty_ratio=1.0))
    advice = advise(never, 0.5)
    assert math.isinf(advice.found.current.size_max_bytes)
    assert advice.effects.now is None
    assert "grows without bound" in said(advice)
    assert "more and more now" in " ".join(advice.effects.sentences())


def test_what_kafka_5_forbids_is_told_and_kept_to_when_asked() -> None:
    slow = replace(BUSY, partitions=2, live_keys=800, updates_per_second=300.0, record_bytes=315.0)
    short = advise(slow, 0.02)
    assert short.found.reachable
    assert short.found.best.policy.segment_ms < 60_000
    assert any("segment.ms" in one for one in short.effects.illegal_later)
    assert "illegal from Kafka 5 on: segment.ms=" in said(short)
    later = advise(replace(slow, broker_version=(5, 0)), 0.2)
    assert later.found.reachable
    assert later.effects.illegal_later == ()


def test_neighbours_that_may_not_be_seen_are_said_to_be_there() -> None:
    assert "could not be counted" in " ".join(advise(BUSY, 0.5, None).effects.sentences())
    alone = " ".join(advise(BUSY, 0.5, Neighbours(0, 0)).effects.sentences())
    assert "share the cleaner threads" not in alone


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (9.4 * 2**20, "9.4 MiB"), (2**50, "1024 TiB")],
)
def test_sizes_are_for_people(number: float, shown: str) -> None:
    assert size(number) == shown


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0.0, "0 %"), (0.00001, "under 0.01 %"), (0.0123, "1.2 %"), (0.5, "50 %"), (2, "200 %")],
)
def test_cpu_is_for_people(share: float, shown: str) -> None:
    assert cores(share) == shown
