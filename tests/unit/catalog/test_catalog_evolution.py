"""The catalog and the schemas of a store: what is numbered, what passes, what is refused and with which words."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.catalog.evolution import evolved, value_obstacles
from stateflow.catalog.model import StoreEntry
from stateflow.codec import String
from stateflow.errors import CatalogIncompatible, DecodeError
from stateflow.state.declare import StateField, declared_fields
from stateflow.state.evolution import application_codec

PAYMENT_1 = make_dataclass("Payment", [("cents", int)])
PAYMENT_2 = make_dataclass("Payment", [("cents", int), ("shop", str, "?")])
PAYMENT_3 = make_dataclass("Payment", [("euros", float), ("shop", str, "?")])


def to_euros(value: dict[str, Any]) -> dict[str, Any]:
    return {"euros": value["cents"] / 100, "shop": value.get("shop", "?")}


def declared(type_: Any, kind: Any = sf.Value, **options: Any) -> StateField:
    owner = type("Op", (), {"__annotations__": {"last": kind[type_ | None]}, "last": sf.state(**options)})
    (field,) = declared_fields(owner, "op")
    return field


def entry(type_: Any, **options: Any) -> StoreEntry:
    return declared(type_, **options).entry("stage", String)


def why(wanted: StoreEntry, found: StoreEntry) -> str:
    return "; ".join(value_obstacles(wanted, found))


def codec_in(catalog: StoreEntry, type_: Any, **options: Any) -> sf.Codec[Any]:
    field = declared(type_, **options)
    return application_codec(
        field.codec, field.entry("stage", String), catalog, field.options.migrations or {}
    )


def test_an_added_field_with_a_default_is_a_new_schema_of_the_same_version() -> None:
    first = entry(PAYMENT_1)
    assert why(entry(PAYMENT_2), first) == ""
    second = evolved(entry(PAYMENT_2), first)
    assert [(s.number, s.version) for s in second.schemas] == [(1, 1), (2, 1)]
    assert evolved(entry(PAYMENT_2), second) == second, "a second start writes nothing"
    old, new = codec_in(second, PAYMENT_1), codec_in(second, PAYMENT_2)
    assert new.decode(old.encode(PAYMENT_1(5))) == PAYMENT_2(5, "?")
    assert old.decode(new.encode(PAYMENT_2(5, "s"))) == PAYMENT_1(5), (
        "workers of before go on during an upgrade"
    )


def test_a_worker_of_before_may_start_again_and_changes_nothing() -> None:
    second = evolved(entry(PAYMENT_2), entry(PAYMENT_1))
    assert why(entry(PAYMENT_1), second) == ""
    assert evolved(entry(PAYMENT_1), second) == second


def test_another_type_needs_a_version_and_a_migration() -> None:
    first = entry(PAYMENT_1)
    assert "'cents' of the value is gone" in why(entry(PAYMENT_3), first)
    said = why(entry(PAYMENT_3, version=2), first)
    assert said.startswith("version 2 has no migration 1 → 2 for values of version 1")
    options = {"version": 2, "migrations": {1: to_euros}}
    assert why(entry(PAYMENT_3, **options), first) == ""
    second = evolved(entry(PAYMENT_3, **options), first)
    codec = codec_in(second, PAYMENT_3, **options)
    stored = codec_in(first, PAYMENT_1).encode(PAYMENT_1(250))
    assert codec.decode(stored) == PAYMENT_3(2.5, "?")
    assert codec.decode(codec.encode(PAYMENT_3(1.0))) == PAYMENT_3(1.0)


def test_migrations_run_one_after_the_other() -> None:
    first = entry(int)
    steps = {1: lambda cents: {"cents": cents}, 2: to_euros}
    second = evolved(entry(PAYMENT_1, version=2, migrations={1: steps[1]}), first)
    third = evolved(entry(PAYMENT_3, version=3, migrations=steps), second)
    assert [(s.number, s.version) for s in third.schemas] == [(1, 1), (2, 2), (3, 3)]
    codec = codec_in(third, PAYMENT_3, version=3, migrations=steps)
    assert codec.decode(codec_in(first, int).encode(-250)) == PAYMENT_3(-2.5, "?")
    written = codec_in(second, PAYMENT_1, version=2, migrations={1: steps[1]}).encode(PAYMENT_1(100))
    assert codec.decode(written) == PAYMENT_3(1.0, "?")
    said = why(entry(PAYMENT_3, version=3, migrations={2: to_euros}), second)
    assert "1 → 2 for values of version 1" in said


def test_a_version_with_the_same_type_may_mean_something_else() -> None:
    first = entry(int)
    second = evolved(entry(int, version=2, migrations={1: lambda euros: euros * 100}), first)
    codec = codec_in(second, int, version=2, migrations={1: lambda euros: euros * 100})
    assert codec.decode(codec_in(first, int).encode(7)) == 700
    assert codec.decode(codec.encode(7)) == 7
    assert why(entry(int, version=2), first) == "", "or the same as before"


def test_code_of_before_does_not_read_what_it_cannot_and_no_policy_passes_it_over() -> None:
    second = evolved(entry(PAYMENT_3, version=2, migrations={1: to_euros}), entry(PAYMENT_1))
    written = codec_in(second, PAYMENT_3, version=2, migrations={1: to_euros}).encode(PAYMENT_3(1.0))
    with pytest.raises(CatalogIncompatible, match="schema 2 of its store; this process knows the schemas 1"):
        codec_in(entry(PAYMENT_1), PAYMENT_1).decode(written)
    assert "version is 1 in the code, 2 in the catalog" in why(entry(PAYMENT_1), second)


def test_a_migration_that_fails_is_named() -> None:
    options = {"version": 2, "migrations": {1: lambda value: value["no such"]}}
    second = evolved(entry(PAYMENT_3, **options), entry(PAYMENT_1))
    with pytest.raises(DecodeError, match="version 1 cannot be migrated: KeyError"):
        codec_in(second, PAYMENT_3, **options).decode(
            codec_in(entry(PAYMENT_1), PAYMENT_1).encode(PAYMENT_1(1))
        )


def avro(*fields: dict[str, Any]) -> sf.Codec[Any]:
    return sf.Avro({"type": "record", "name": "Payment", "fields": list(fields)})


CENTS = {"name": "cents", "type": "int"}
SHOP = {"name": "shop", "type": "string", "default": "?"}


def test_avro_values_are_read_with_the_schema_of_their_writer() -> None:
    first = entry(Any, codec=avro(CENTS))
    assert why(entry(Any, codec=avro(CENTS, SHOP)), first) == ""
    second = evolved(entry(Any, codec=avro(CENTS, SHOP)), first)
    third = evolved(entry(Any, codec=avro(SHOP)), second)
    old, new = codec_in(second, Any, codec=avro(CENTS)), codec_in(second, Any, codec=avro(CENTS, SHOP))
    newest = codec_in(third, Any, codec=avro(SHOP))
    assert new.decode(old.encode({"cents": 5})) == {"cents": 5, "shop": "?"}
    assert old.decode(new.encode({"cents": 5, "shop": "s"})) == {"cents": 5}
    assert newest.decode(new.encode({"cents": 5, "shop": "s"})) == {"shop": "s"}
    assert "new and has no default" in why(
        entry(Any, codec=avro(CENTS, SHOP)),
        evolved(entry(Any, codec=avro(SHOP)), entry(Any, codec=avro(SHOP))),
    )


@dataclass
class Aggregate:
    store: StoreEntry


@pytest.mark.parametrize(
    ("wanted", "found", "said"),
    [
        (entry(int, ttl=timedelta(1)), entry(int), "a time to live was added"),
        (entry(int), entry(int, ttl=timedelta(1)), "a time to live was added, taken away"),
        (entry(int, ttl=timedelta(1), ttl_per_write=True), entry(int, ttl=timedelta(1)), "per write"),
        (entry(int, ttl=timedelta(1)), entry(int, ttl=timedelta(2)), "would be deleted at once"),
        (entry(int, ttl=timedelta(1), version=2), entry(int, ttl=timedelta(2)), ""),
        (entry(int, ttl=timedelta(3)), entry(int, ttl=timedelta(2)), ""),
        (entry(str), entry(int), "integer of 64 bits became string"),
        (entry(bytes, version=2, migrations={1: bytes}), entry(str), ""),
    ],
)
def test_changes_of_a_declaration(wanted: StoreEntry, found: StoreEntry, said: str) -> None:
    assert (said in why(wanted, found)) if said else why(wanted, found) == ""
