"""One limit per process: its shares, and who has to give way when all tasks together hold too much."""

from __future__ import annotations

import pytest

from stateflow.clock import ManualClock
from stateflow.config import AppOptions, resolve
from stateflow.errors import ConfigError
from stateflow.memory import MEMORY_BYTES, MEMORY_BYTES_MIN, memory_shares
from stateflow.store.dirty import DirtyStore
from stateflow.store.generations import ReadCache
from stateflow.store.memory import MemoryTaskStores


@pytest.mark.parametrize("limit_bytes", [MEMORY_BYTES_MIN, 300_000_001, MEMORY_BYTES, 64 << 30])
@pytest.mark.parametrize("standby", [False, True])
def test_shares_add_up_to_the_limit(limit_bytes: int, standby: bool) -> None:
    shares = memory_shares(limit_bytes, standby=standby)
    assert shares.limit_bytes == limit_bytes
    assert all(size_bytes > 0 for name, size_bytes in shares.shown() if name != "standby_bytes")
    assert (shares.standby_bytes > 0) == standby


def test_what_restores_and_caches_take_does_not_grow_with_their_number() -> None:
    shares = memory_shares(MEMORY_BYTES)
    for restores in (1, 2, 8):
        assert restores * shares.restore_bytes_each(restores) <= shares.restore_bytes
    for tasks in (1, 64, 1_000):
        assert tasks * shares.read_cache_bytes_each(tasks) <= shares.read_caches_bytes


def test_settings_of_their_own_stand_beside_the_limit() -> None:
    derived = AppOptions(memory_bytes=512 << 20)
    assert derived.memory.limit_bytes == 512 << 20
    assert derived.task_dirty_bytes_max == derived.memory.dirty_bytes
    assert AppOptions(dirty_bytes_max=123).task_dirty_bytes_max == 123
    assert AppOptions(read_cache_bytes=0).read_cache_bytes == 0, "no read cache, not the derived one"


@pytest.mark.parametrize("wrong", [0, 100 << 20, "1 GB"])
def test_a_limit_that_is_too_small_or_no_number_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match="memory_bytes"):
        AppOptions(memory_bytes=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="STATEFLOW_MEMORY_BYTES"):
        resolve("shop", AppOptions(), {}, {"STATEFLOW_MEMORY_BYTES": str(wrong)})


def test_the_plan_of_shares_is_shown_with_the_settings() -> None:
    settings = resolve("shop", AppOptions(standby_replicas=1), {}, {"STATEFLOW_MEMORY_BYTES": str(512 << 20)})
    shown = {setting.name: setting for setting in settings.shown()}
    shares = [setting for name, setting in shown.items() if name.startswith("memory_bytes.")]
    assert sum(int(setting.value) for setting in shares) == 512 << 20
    assert {setting.origin for setting in shares} == {"memory_bytes"}
    assert shown["memory_bytes.standby"].value == str(32 << 20)


def test_a_cache_that_is_limited_makes_room_at_once() -> None:
    cache = ReadCache(100_000)
    cache.put_many([b"%03d" % number for number in range(100)], [b"v" * 100] * 100)
    before_bytes = cache.size_bytes
    cache.limit(5_000)
    assert cache.size_bytes <= 5_000 < before_bytes
    assert cache.get(b"099") == b"v" * 100, "the oldest go first"
    cache.limit(0)
    assert cache.size_bytes == 0
    cache.put(b"k", b"v")
    assert cache.size_bytes == 0


def test_what_was_deleted_takes_no_room_in_the_cache() -> None:
    """Windows open and close for ever: the cache holds those that are open."""
    stores = MemoryTaskStores(["a"], ManualClock(1_000))
    dirty = DirtyStore(stores.reader("a"), read_cache_bytes=1 << 20)
    for window in range(100):
        keys = [b"%03d-%03d" % (window, number) for number in range(10)]
        dirty.put_many([(key, b"v") for key in keys])
        stores.apply({"a": dirty.changes()}, {})
        dirty.committed()
        assert dirty.get_many(keys) == [b"v"] * 10
        dirty.put_many([(key, None) for key in keys])
        stores.apply({"a": dirty.changes()}, {})
        dirty.committed()
        assert dirty._cache.size_bytes == 0
    assert dirty.get(b"050-005") is None
