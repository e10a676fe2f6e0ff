"""Entries of the control topic whose bytes keep a word that the code has given up: older versions read them."""

from __future__ import annotations

from stateflow.catalog.encoding import decode_entry, encode_item
from stateflow.catalog.model import BarrierEntry, GenerationEntry, RoutingEntry

BARRIER = BarrierEntry(
    barrier_id=3,
    savepoint="one",
    location="/saved",
    generation=0,
    state="open",
    requested_ms=1,
    deadline_ms=2,
)
BARRIER_BYTES = (
    b'{"deadline_ms":2,"generation":0,"location":"/saved","number":3,"reason":null,"requested_ms":1,'
    b'"savepoint":"one","state":"open"}'
)
MERGED = GenerationEntry(
    generation=2, state="preparing", routing=RoutingEntry(kind="modulo", partitions=4), merged_app="west"
)
MERGED_BYTES = (
    b'{"absorbs":"west","activated_ms":null,"audit":[],"created_ms":0,"generation":2,"routing":{"bounds":[],'
    b'"kind":"modulo","owners":[],"partitions":4},"savepoint":null,"source_generation":0,"state":"preparing",'
    b'"topic_ids":{}}'
)


def test_a_savepoint_barrier_is_written_under_the_key_cut() -> None:
    assert encode_item(BARRIER) == (b"cut", BARRIER_BYTES)
    assert decode_entry("shop", b"cut", BARRIER_BYTES) == BARRIER


def test_a_merged_application_is_written_in_its_former_field() -> None:
    assert encode_item(MERGED) == (b"generation/2", MERGED_BYTES)
    assert decode_entry("shop", b"generation/2", MERGED_BYTES) == MERGED
