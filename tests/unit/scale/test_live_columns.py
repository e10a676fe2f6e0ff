"""Live entries in columns: those of a map of Python, however little memory there is."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateflow.changelog.format import TOUCH_KEY, is_reserved
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.log.reading import read_range
from stateflow.record import OffsetRange, TopicPartition
from stateflow.scale.live_columns import live_columns
from stateflow.scale.newest_rows import newest_rows
from stateflow.scale.ranges import ChangelogRange

SOURCE = TopicPartition("log", 0)


def filled(seed: int, *, headers: bool) -> MemoryCluster:
    cluster, rng = MemoryCluster(), random.Random(seed)
    cluster.create([TopicSpec("log", 1)])
    writer = cluster.writer()
    for _ in range(rng.randrange(400)):
        key = rng.choice([b"key-%d" % rng.randrange(90), b"", TOUCH_KEY, None])
        value = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(40))
        named = (("trace", b"1"),) if headers and rng.random() < 0.1 else ()
        writer.send("log", key, value, partition=0, timestamp_ms=rng.randrange(9), headers=named)
    writer.commit()
    writer.close()
    return cluster


@pytest.mark.parametrize("headers", [False, True], ids=["without headers", "with headers"])
@pytest.mark.parametrize("plain", [False, True], ids=["as is in use", "Python"])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), bytes_max=st.integers(0, 20_000), cut=st.floats(0, 1))
def test_entries_are_those_of_a_map(
    seed: int, bytes_max: int, cut: float, *, plain: bool, headers: bool
) -> None:
    cluster = filled(seed, headers=headers)
    log = cluster.ranges([SOURCE])[SOURCE]
    part = OffsetRange(int(log.offset_next * cut), log.offset_next)
    found: dict[bytes, bytes] = {}
    with pytest.MonkeyPatch.context() as patched, TemporaryDirectory() as folder:
        patched.setattr("tempfile.tempdir", folder)
        if plain:
            patched.setattr("stateflow.scale.live_columns.newest_rows", lambda: newest_rows(plain=True))
        for keys, values in live_columns(cluster, ChangelogRange(SOURCE, part, None), bytes_max):
            assert len(keys) == len(values)
            assert not found.keys() & set(keys), "each key once"
            found |= dict(zip(keys, values, strict=True))
        assert not list(Path(folder).iterdir()), "nothing is left on disk"
    newest: dict[bytes | None, bytes | None] = {}
    for batch in read_range(cluster, SOURCE, part):
        newest |= zip(batch.keys, batch.values, strict=True)
    expected = {
        key: value
        for key, value in newest.items()
        if key is not None and value is not None and not is_reserved(key)
    }
    assert found == expected
    cluster.close()
