"""Verbs that see more of a record than its value: its key and its headers; and topics chosen for each record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import stateflow as sf
from stateflow.lab.operators.logs import Row
from stateflow.lab.operators.verb import Inputs, Rule, Verb, output
from stateflow.record import Headers

Results = Iterable[tuple[Any, Any]]


def record_verbs() -> list[Verb]:
    """All of them."""
    return [
        Verb("key and value", _pairs, _pairs_results),
        Verb("headers", _headers, _headers_results),
        Verb("a topic for each record", _chosen, _chosen_results),
    ]


def _pairs(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    source = inputs.app.stream(inputs.left)
    some = source.filter_pairs(_is_other).flat_map_pairs(_twice_for_a, value=int)
    some.key_by_pairs(_paired, name="pairs", key=str).sum(name="sums").to(topic)
    return topic, "newest"


def _is_other(key: str, value: int) -> bool:
    return len(key) + value % 3 != 2


def _twice_for_a(key: str, value: int) -> list[int]:
    return [value, value] if key == "a" else [value]


def _paired(key: str, value: int) -> str:
    return f"{key}{value % 2}"


def _pairs_results(rows: Sequence[Row]) -> Results:
    sums: dict[str, int] = defaultdict(int)
    for row in rows:
        if _is_other(row.key, row.given):
            sums[_paired(row.key, row.given)] += sum(_twice_for_a(row.key, row.given))
    return sums.items()


class Reading(sf.Operator[str, int, list[Any]]):
    """Adds up what the headers say, and tells how many each record had."""

    total: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: int, ctx: sf.Context[list[Any], str]) -> None:
        """Read the newest of the headers; set others."""
        given = int(ctx.header("given") or b"0")
        self.total.set(self.total.get() + given)
        ctx.emit([ctx.key, value, self.total.get()], headers=[*ctx.headers, ("count", str(len(ctx.headers)))])


def _headers(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs, sf.Json, key=int)
    marked = inputs.app.stream(inputs.left).map_headers(_given).flat_map(_twice, value=int)
    read = marked.key_by_pairs(_same_key, name="by-key", key=str).process(Reading, name="reading")
    read.key_by(_value_of, name="by-value", key=int, value=sf.MsgPack).map_records(_told).to(topic)
    return topic, "all"


def _given(headers: Headers, value: int) -> dict[str, str]:
    assert not headers, "those of the log have none"
    return {"given": str(value)} if value % 5 else {}


def _twice(value: int) -> list[int]:
    return [value, -value]


def _same_key(key: str, _value: int) -> str:
    return key


def _value_of(told: list[Any]) -> int:
    return int(told[1])


def _told(record: sf.StreamRecord[int, list[Any]]) -> list[Any]:
    return [*record.value, {name: content.decode() for name, content in record.headers}]


def _headers_results(rows: Sequence[Row]) -> Results:
    totals: dict[str, int] = defaultdict(int)
    for row in rows:
        for value in _twice(row.given):
            own = {"given": str(row.given)} if row.given % 5 else {}
            totals[row.key] += row.given if own else 0
            headers = tuple(sorted({**own, "count": str(len(own))}.items()))
            yield value, (row.key, value, totals[row.key], headers)


def _chosen(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic, other = output(inputs), inputs.app.topic("other", key=str, value=int)
    inputs.stream().to(lambda value: topic if value % 3 else other, among=(topic, other))
    return topic, "all"


def _chosen_results(rows: Sequence[Row]) -> Results:
    return [(row.key, row.given) for row in rows if row.given % 3]
