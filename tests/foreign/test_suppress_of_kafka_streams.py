"""Results that are held back, on a thousand random logs, compared with those of Kafka Streams' test driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from stateflow.lab.time.streams import KafkaStreams, prepare
from stateflow.lab.time.suppressing import SUPPRESS_ORACLE, SUPPRESSIONS, asked, played, suppress_case

pytestmark = pytest.mark.slow

SEED = 7
LOGS_PER_KIND = 77
assert len(SUPPRESSIONS) * LOGS_PER_KIND >= 1_000


@pytest.fixture(scope="module")
def streams() -> Iterator[KafkaStreams]:
    with closing(KafkaStreams(prepare(SUPPRESS_ORACLE))) as running:
        yield running


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "number", range(len(SUPPRESSIONS)), ids=[f"{at}-{'-'.join(each)}" for at, each in enumerate(SUPPRESSIONS)]
)
def test_what_is_held_back_is_what_kafka_streams_holds_back(streams: KafkaStreams, number: int) -> None:
    seen: Counter[str] = Counter()
    for at in range(number, len(SUPPRESSIONS) * LOGS_PER_KIND, len(SUPPRESSIONS)):
        case = suppress_case(SEED, at)
        wanted = asked(case, streams)
        assert played(case) == wanted, f"log {at}"
        seen["results"] += sum(map(len, wanted.results.values()))
        seen["failed"] += wanted.failed >= 0
        seen["each"] += case.rule == "each"
        seen["bounded"] += case.max_records > 0
    assert seen["results"] > 500
    until, window = SUPPRESSIONS[number]
    assert (seen["each"] > 0) == (until == "close" or (until == "limit" and window != "session"))
    can_fail = until != "tick" and window in ("none", "tumbling", "hopping")
    assert (seen["failed"] > 0, seen["bounded"] > seen["failed"]) == (can_fail, can_fail)


def test_what_differs_is_seen(streams: KafkaStreams) -> None:
    """The logs tell other rules apart: a limit that is a little longer."""
    different = 0
    for at in range(0, 130, len(SUPPRESSIONS)):
        case = suppress_case(SEED, at)
        different += asked(replace(case, limit_ms=case.limit_ms + 60), streams) != played(case)
    assert different > 2
