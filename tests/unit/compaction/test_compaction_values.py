"""The values that an experiment writes."""

from __future__ import annotations

import itertools
import zlib
from dataclasses import replace

from stateflow.compaction.calibration.values import Values
from stateflow.compaction.model.streams import Stream

STREAM = Stream(keys=50, seconds=2.0, seed=3)
BATCH_RECORDS = 300


def test_a_hot_key_in_one_batch_saves_the_codec_nothing() -> None:
    values = Values(STREAM)
    for _ in range(3):
        batch = b"".join(
            values.of(update) or b"" for update in itertools.islice(STREAM.updates(), BATCH_RECORDS)
        )
        assert len(zlib.compress(batch)) > 0.999 * len(batch)


def test_values_are_as_long_as_the_stream_says_and_tombstones_have_none() -> None:
    stream = replace(STREAM, tombstone_share=0.3, seconds=10.0)
    values = Values(stream)
    updates = list(stream.updates())
    lengths = [None if (value := values.of(update)) is None else len(value) for update in updates]
    assert lengths == [update.value_bytes for update in updates]
    assert None in lengths
