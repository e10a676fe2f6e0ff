"""Keys in order against a plain sorted set, and the dirty map that scans through them."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateflow.store.dirty import DirtyStore
from stateflow.store.memory import MemoryReader
from stateflow.store.ordered import OrderedKeys

KEYS = st.binary(max_size=2)
STEPS = st.lists(st.tuples(st.booleans(), KEYS), max_size=60)


@given(st.lists(KEYS, max_size=20), STEPS, KEYS, st.none() | KEYS)
def test_like_a_sorted_set(
    start: list[bytes], steps: list[tuple[bool, bytes]], first: bytes, after: bytes | None
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[OrderedKeys.__module__], "_CHUNK_KEYS", 3)
        keys, model = OrderedKeys(set(start)), set(start)
        for adds, key in steps:
            (keys.add if adds else keys.discard)(key)
            (model.add if adds else model.discard)(key)
            assert keys.between(b"", None) == sorted(model)
        expected = sorted(key for key in model if key >= first and (after is None or key < after))
        assert keys.between(first, after) == expected


@given(
    st.lists(KEYS, max_size=20), st.lists(st.tuples(st.booleans(), st.lists(KEYS, max_size=8)), max_size=20)
)
def test_many_at_once_like_a_sorted_set(start: list[bytes], steps: list[tuple[bool, list[bytes]]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[OrderedKeys.__module__], "_CHUNK_KEYS", 3)
        keys, model = OrderedKeys(set(start)), set(start)
        for adds, some in steps:
            if adds:
                some = sorted(set(some))
                is_apart = not some or not model or some[0] > max(model) or some[-1] < min(model)
                was_put = keys.extend(some)
                assert was_put or not is_apart
                model.update(some if was_put else ())
            else:
                keys.discard_all(some)
                model.difference_update(some)
            assert keys.between(b"", None) == sorted(model)


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "delete", "many", "fail", "scan", "commit"]), KEYS), max_size=40
    )
)
def test_a_scan_sees_every_write_of_the_epoch(steps: list[tuple[str, bytes]]) -> None:
    reader = MemoryReader()
    store, model = DirtyStore(reader), dict[bytes, bytes]()
    for verb, key in steps:
        if verb == "put":
            store.put(key, b"1")
            model[key] = b"1"
        elif verb == "delete":
            store.delete(key)
            model.pop(key, None)
        elif verb == "many":
            store.put_many([(key, b"2"), (key + b"x", b"3")])
            model |= {key: b"2", key + b"x": b"3"}
        elif verb == "fail":
            mark = store.mark()
            store.put(key, b"4")
            store.delete(key + b"x")
            store.rollback(mark)
        elif verb == "commit":
            reader.change(store.changes())
            store.committed()
        else:
            assert list(store.scan(key)) == sorted((k, v) for k, v in model.items() if k >= key)
    assert list(store.scan()) == sorted(model.items())
