"""A number that stays a number until the commit: like a value in bytes, whatever is written to it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stateflow as sf
from stateflow.codec.base import Codec
from stateflow.codec.evolving import MAGIC, EvolvingCodec
from stateflow.errors import DecodeError, EncodeError, GraphError, ProcessingError
from stateflow.lab.applications.stage import StageBench
from stateflow.native.loading import core
from stateflow.state.decoded_value import DecodedValue, assigning, may_stay_decoded
from stateflow.state.scope import Scope
from stateflow.state.value import Value
from stateflow.store.decoded import DecodedStore
from stateflow.store.dirty import DirtyStore
from stateflow.store.folded import FoldedStore, decoded_in_place_of
from stateflow.store.memory import MemoryReader

ENVELOPED = EvolvingCodec(sf.Integer, 1, {1: sf.Integer}, is_bare=True)
LIKE_AN_ENVELOPE = sf.Integer.decode(MAGIC + bytes(3))
WRITTEN = st.one_of(
    st.integers(-5, 5),
    st.sampled_from(
        [None, LIKE_AN_ENVELOPE, 2**63 - 1, -(2**63), 2**63, True, 1.5, -0.0, float("inf"), "text", b"bytes"]
    ),
)
Steps = st.lists(
    st.tuples(
        st.sampled_from(["set", "get", "clear", "is set", "commit", "restart", "load", "write back"]),
        st.sampled_from([b"a", b"b", b"c"]),
        WRITTEN,
    ),
    max_size=30,
)


class Twins:
    """The same state twice: in bytes and decoded."""

    def __init__(self, codec: Codec[Any], default: Any) -> None:
        self._codec, self._default = codec, default
        self.readers = [MemoryReader(), MemoryReader(), MemoryReader()]
        self.restart()

    def restart(self) -> None:
        self.scope = Scope()
        folded = decoded_in_place_of(
            DirtyStore(self.readers[2], 1 << 20), self._codec, assigning(self._codec)
        )
        self.decoded = [DecodedStore(self.readers[1], self._codec, 1 << 20), folded]
        self.stores: list[DirtyStore] = [DirtyStore(self.readers[0]), *self.decoded]
        self.handles: list[Value[Any]] = [
            Value(self.stores[0], self._codec, self.scope, self._default, None),
            *(DecodedValue(store, self._codec, self.scope, self._default) for store in self.decoded),
        ]

    def commit(self) -> None:
        for reader, store in zip(self.readers, self.stores, strict=True):
            reader.change(store.changes())
            store.committed()
        plain, decoded, folded = (list(reader.scan()) for reader in self.readers)
        assert plain == decoded == folded


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([(sf.Integer, 7), (sf.Integer, None), (sf.Float, 0.5), (ENVELOPED, 1)]), Steps)
def test_like_a_value_in_bytes(kind: tuple[Codec[Any], Any], steps: list[tuple[str, bytes, Any]]) -> None:
    twins = Twins(*kind)
    for verb, key, value in steps:
        twins.scope.key = key
        if verb == "commit":
            twins.commit()
        elif verb == "restart":
            twins.commit()
            twins.restart()
        elif verb == "load":
            for store in twins.decoded:
                store.load([b"a", b"c"])
        elif verb == "write back":
            for store in twins.decoded:
                store.write_back()
        else:
            plain, decoded, folded = (_outcome(handle, verb, value) for handle in twins.handles)
            assert (type(plain), plain) == (type(decoded), decoded) == (type(folded), folded)
    twins.commit()


def test_numbers_of_64_bits_stay_decoded_and_nothing_else_does() -> None:
    assert may_stay_decoded(sf.Integer)
    assert may_stay_decoded(sf.Float)
    for codec in (sf.Int32, sf.Float32, sf.String, sf.Bytes, sf.Boolean, sf.Json, sf.MsgPack):
        assert not may_stay_decoded(codec)


@pytest.mark.skipif(core() is None, reason="the native core is not in use")
def test_numbers_of_an_operator_stay_in_the_core_over_commits() -> None:
    stage = stage_of(sf.Fail())
    store = stage.context.store("adding-total")
    assert isinstance(store, FoldedStore)
    for _ in range(5):
        stage.feed(*((key, sf.Integer.encode(1), 0) for key in (b"a", b"b", b"a")))
        stage.commit()
        assert store._is_folding
    assert assigning(EvolvingCodec(sf.Integer, 2, {1: sf.Integer}, is_bare=False)) is None
    assert assigning(EvolvingCodec(sf.Integer, 1, {1: sf.Int32}, is_bare=True)) is None


class Adding(sf.Operator[str, int, int]):
    """Sums up; fails on a negative number, after it was added."""

    total: sf.Value[int] = sf.state(default=0)
    names: sf.Value[str] = sf.state(default="")

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        self.total.set(self.total.get() + value)
        self.names.set(self.names.get() + "x")
        if value < 0:
            raise ValueError("negative")
        ctx.emit(self.total.get())


def stage_of(on_error: Any) -> StageBench:
    app = sf.App("test")
    stream = app.stream(app.topic("in", value=int)).key_by(lambda _v: "", name="by-key", key=str)
    stream.process(Adding, name="adding", on_error=on_error).to(app.topic("out", key=str, value=int))
    return StageBench(app.topology().stages[1])


@pytest.mark.parametrize("on_error", [sf.Fail(), sf.Skip()])
def test_an_operator_counts_on_after_commits_and_restarts(on_error: Any) -> None:
    stage = stage_of(on_error)
    kept = isinstance(stage.context.store("adding-total"), DecodedStore)
    assert kept == isinstance(on_error, sf.Fail), "what may have to be undone stays in bytes"
    for number in range(1, 4):
        stage.feed(*((key, sf.Integer.encode(1), 0) for key in (b"a", b"b", b"a")))
        stage.commit()
        expected = [(b"a", sf.Integer.encode(2 * number)), (b"b", sf.Integer.encode(number))]
        assert list(stage.context.committed.reader("adding-total").scan()) == expected
        stage = stage.restarted() if number == 2 else stage


def test_a_failing_record_is_undone_as_before_where_it_is_skipped_and_stops_the_task_elsewhere() -> None:
    stage = stage_of(sf.Skip())
    stage.feed(*((b"a", sf.Integer.encode(value), 0) for value in (5, -3, 2)))
    stage.commit()
    assert list(stage.context.committed.reader("adding-total").scan()) == [(b"a", sf.Integer.encode(7))]
    with pytest.raises(ProcessingError, match="negative"):
        stage_of(sf.Fail()).feed((b"a", sf.Integer.encode(-1), 0))


def test_bytes_that_are_no_number_are_met_at_the_record_that_asks_for_them() -> None:
    stage = stage_of(sf.Fail())
    stage.context.committed.apply({"adding-total": [(b"b", b"no number")]}, {})
    with pytest.raises(DecodeError) as caught:
        stage.feed((b"a", sf.Integer.encode(1), 0), (b"b", sf.Integer.encode(1), 0))
    assert caught.value.fields["offset"] == 1


def _outcome(handle: Value[Any], verb: str, value: Any) -> Any:
    try:
        if verb == "set":
            handle.set(value)
        elif verb == "clear":
            handle.clear()
        elif verb == "is set":
            return handle.is_set
        return handle.get()
    except EncodeError:
        return "refused"


def test_a_time_to_live_of_its_own_is_refused_as_for_any_value() -> None:
    twins = Twins(sf.Integer, None)
    for handle in twins.handles:
        with pytest.raises(GraphError, match="ttl"):
            handle.set(1, ttl=timedelta(seconds=1))
