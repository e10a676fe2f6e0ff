"""What must have come of the input, in plain Python over the whole of it; it shares no code with the operators."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from stateflow.lab.chaos.shop import GAP_MS, PAID_WITHIN_MS, WINDOW_MS, Order, Payment, Timed

EXACT = ("windows", "sessions", "balance", "pairs")
"""Topics of which every record is foretold. ``shops`` tells totals as they grow: how often hangs on batches."""
STORES = ("shops", "balance-ordered", "balance-paid")
_EXAMPLES = 10


class Row(NamedTuple):
    """One output record."""

    topic: str
    key: str
    at_ms: int
    text: str


State = Mapping[str, Mapping[str, int]]
"""Store → key → value."""


@dataclass
class Truth:
    """All that must be there."""

    rows: Counter[Row]
    state: dict[str, dict[str, int]]


@dataclass
class Comparison:
    """How what was found differs from what must be there; all are 0 where it does not."""

    different: int = 0
    lost: int = 0
    duplicated: int = 0
    examples: list[str] = field(default_factory=list)

    def note(self, kind: str, what: object, count: int = 1) -> None:
        """Count a difference, and keep the first ones."""
        setattr(self, kind, getattr(self, kind) + count)
        if len(self.examples) < _EXAMPLES:
            self.examples.append(f"{kind}: {what}")


def truth(partitions: Iterable[Sequence[Timed]]) -> Truth:
    """What comes of records, each partition's in the order of its log."""
    orders: list[tuple[int, Order]] = []
    payments: list[tuple[int, Payment]] = []
    rows: Counter[Row] = Counter()
    state: dict[str, Counter[str]] = {name: Counter() for name in STORES}
    for partition in partitions:
        for record in partition:
            what = record.value
            if isinstance(what, Order):
                kind, store = "order", "balance-ordered"
                orders.append((record.at_ms, what))
                state["shops"][what.shop] += what.cents
            else:
                kind, store = "payment", "balance-paid"
                payments.append((record.at_ms, what))
            state[store][what.customer] += what.cents
            text = f"{kind} {what.id} {state[store][what.customer]}"
            rows[Row("balance", what.customer, record.at_ms, text)] += 1
    rows.update(_windows(orders))
    rows.update(_sessions(orders))
    rows.update(_pairs(orders, payments))
    return Truth(rows, {name: dict(values) for name, values in state.items()})


def _windows(orders: Iterable[tuple[int, Order]]) -> Iterator[Row]:
    counts = Counter((order.customer, at_ms - at_ms % WINDOW_MS) for at_ms, order in orders)
    for (customer, start_ms), count in counts.items():
        yield Row("windows", customer, start_ms, str(count))


def _sessions(orders: Iterable[tuple[int, Order]]) -> Iterator[Row]:
    by_shop: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for at_ms, order in orders:
        by_shop[order.shop].append((at_ms, order.cents))
    for shop, several in by_shop.items():
        several.sort()
        end_ms, cents = several[0][0], 0
        for at_ms, more in several:
            if at_ms - end_ms > GAP_MS:
                yield Row("sessions", shop, end_ms, str(cents))
                cents = 0
            end_ms = at_ms
            cents += more
        yield Row("sessions", shop, end_ms, str(cents))


def _pairs(orders: Iterable[tuple[int, Order]], payments: Iterable[tuple[int, Payment]]) -> Iterator[Row]:
    paid: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for at_ms, payment in payments:
        paid[payment.order].append((at_ms, payment.id))
    for at_ms, order in orders:
        met = [one for one in paid[order.id] if at_ms <= one[0] <= at_ms + PAID_WITHIN_MS]
        for paid_ms, payment_id in met:
            yield Row("pairs", order.id, paid_ms, f"{order.id} {payment_id}")
        if not met:
            yield Row("pairs", order.id, at_ms, f"{order.id} unpaid")


def compare_rows(expected: Counter[Row], found: Counter[Row], into: Comparison) -> None:
    """Every record must be there, and once.

    A record with another text in the place of one that is missing is one difference, not two.
    """
    missing, extra = expected - found, found - expected
    wrong: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row, count in sorted(extra.items()):
        if row in expected:
            into.note("duplicated", row, count)
        else:
            wrong[row[:3]] += [row] * count
    for row, count in sorted(missing.items()):
        for _ in range(count):
            instead = wrong[row[:3]].pop() if wrong[row[:3]] else None
            if instead is None:
                into.note("lost", row)
            else:
                into.note("different", f"{instead} instead of {row.text}")
    for several in wrong.values():
        for row in several:
            into.note("different", f"{row}, which must not be there")


def compare_state(expected: State, found: State, into: Comparison) -> None:
    """Every key must be there, with its value."""
    for store, values in expected.items():
        there = found.get(store, {})
        for key in sorted(values.keys() - there.keys()):
            into.note("lost", f"{key} in {store}")
        for key in sorted(there):
            if there[key] != values.get(key):
                into.note("different", f"{store}[{key}] is {there[key]}, not {values.get(key)}")


def compare_totals(expected: Mapping[str, int], told: Mapping[str, Sequence[int]], into: Comparison) -> None:
    """Totals told as they grew, in the order in which they were told: never one twice or back, the last one whole."""
    for shop, total in expected.items():
        values = told.get(shop, ())
        for before, after in pairwise(values):
            if after == before:
                into.note("duplicated", f"total {after} of {shop}")
            elif after < before:
                into.note("different", f"total {after} of {shop} behind {before}")
        if not values:
            into.note("lost", f"totals of {shop}")
        elif values[-1] != total:
            into.note("different", f"last total of {shop} is {values[-1]}, not {total}")
