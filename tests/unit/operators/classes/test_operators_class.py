"""The typed operator class: per-key state, emissions, failure without traces."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import GraphError, ProcessingError
from stateflow.lab.applications.stage import StageBench
from stateflow.operators.steps.error_policy import Policy
from stateflow.operators.steps.marks import NO_OTHERS_MS, mark_headers


@dataclass
class Payment:
    card: str
    cents: int
    shop: str


@dataclass
class Alert:
    card: str
    total: int


class Fraud(sf.Operator[str, Payment, Alert]):
    total: sf.Value[int] = sf.state(default=0, ttl=timedelta(days=30))
    recent: sf.ListOf[Payment] = sf.state(max_length=2)
    by_shop: sf.MapOf[str, int] = sf.state()

    def on_record(self, value: Payment, ctx: sf.Context[Alert]) -> None:
        self.total.set(self.total.get() + value.cents)
        self.recent.append(value)
        self.by_shop.merge(value.shop, value.cents, int.__add__)
        if value.shop == "closed":
            raise ValueError("the shop is closed")
        if self.total.get() > 100:
            ctx.emit(Alert(ctx.key, self.total.get()))
            ctx.count("alerts_total")


def bench(operator: type[sf.Operator[Any, Any, Any]] = Fraud, on_error: Policy = sf.Fail()) -> StageBench:  # noqa: B008
    app = sf.App("bank")
    payments = app.topic("payments", value=Payment)
    alerts = app.topic("alerts", key=str, value=sf.Json)
    app.operator("fraud", source=payments, key="card", sink=alerts, on_error=on_error)(operator)
    return StageBench(app.topology().stages[1])


def pay(card: str, cents: int, shop: str = "s", when_ms: int = 0) -> tuple[bytes, bytes, int]:
    return card.encode(), sf.JsonOf(Payment).encode(Payment(card, cents, shop)), when_ms


def alerts(stage: StageBench) -> list[Any]:
    return [
        (s.key, sf.Json.decode(s.value or b""), s.timestamp_ms) for s in stage.context.sent.pop("alerts", [])
    ]


def stored(stage: StageBench) -> dict[str, int]:
    return {name: len(store.changes()) for name, store in stage.context.stores.items()}


def test_state_is_per_key_and_survives_a_restart() -> None:
    stage = bench()
    stage.feed(pay("c1", 60, when_ms=5), pay("c2", 60, when_ms=6), pay("c1", 50, when_ms=7))
    assert alerts(stage) == [(b"c1", {"card": "c1", "total": 110}, 7)]
    stage.commit()
    stage = stage.restarted()
    stage.feed(pay("c2", 50, when_ms=8))
    assert alerts(stage) == [(b"c2", {"card": "c2", "total": 110}, 8)]
    assert stage.context.counters["alerts_total"] == 1


def test_types_come_from_the_class_and_not_from_more_words() -> None:
    stage = bench()
    entries = {entry.name: entry for entry in stage.stage.stores}
    assert set(entries) == {"fraud-total", "fraud-recent", "fraud-by_shop"}
    assert entries["fraud-recent"].value_codec["type"] == "Payment"
    assert all(
        entry.stage == "fraud" and entry.key_codec == {"codec": "string"} for entry in entries.values()
    )


@pytest.mark.parametrize("policy", [sf.Skip(), sf.DeadLetter("dead"), sf.Retry(2, then=sf.Skip())])
def test_a_record_that_fails_leaves_no_trace(policy: Policy) -> None:
    stage = bench(on_error=policy)
    stage.feed(pay("c1", 999, "closed"))
    assert stored(stage) == {"fraud-total": 0, "fraud-recent": 0, "fraud-by_shop": 0}
    assert alerts(stage) == []
    stage.feed(pay("c1", 60), pay("c1", 999, "closed"), pay("c1", 50))
    assert [alert["total"] for _, alert, _ in alerts(stage)] == [110]
    assert (stage.context.sent.keys() == {"dead"}) == isinstance(policy, sf.DeadLetter)


def test_under_fail_the_error_names_the_record() -> None:
    stage = bench()
    with pytest.raises(ProcessingError, match="shop is closed") as caught:
        stage.feed(pay("c1", 1), pay("c2", 5, "closed"))
    assert (caught.value.fields["step"], caught.value.fields["offset"]) == ("fraud", 1)


class FailsAfterEmitting(sf.Operator[str, Payment, int]):
    seen: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: Payment, ctx: sf.Context[int]) -> None:
        self.seen.set(self.seen.get() + 1)
        ctx.emit(self.seen.get(), timestamp_ms=77)
        if value.cents < 0:
            raise ValueError("negative")


def test_what_was_emitted_before_a_failure_is_taken_back() -> None:
    stage = bench(FailsAfterEmitting, on_error=sf.Skip())
    stage.feed(pay("c", 1), pay("c", -1), pay("c", 1))
    assert alerts(stage) == [(b"c", 1, 77), (b"c", 2, 77)]


class Curious(sf.Operator[str, Payment, list[Any]]):
    def on_record(self, value: Payment, ctx: sf.Context[list[Any]]) -> None:
        ctx.emit([ctx.key, ctx.timestamp_ms, ctx.watermark_ms, ctx.source.topic, ctx.offset])


def test_the_context_tells_about_the_record() -> None:
    stage = bench(Curious)
    stage.advance(40)
    stage.context.others_ms = 40
    stage.feed(pay("c1", 1, when_ms=50), pay("c2", 1, when_ms=51), topic="bank-fraud-repartition")
    assert [value for _, value, _ in alerts(stage)] == [
        ["c1", 50, 40, "bank-fraud-repartition", 0],
        ["c2", 51, 40, "bank-fraud-repartition", 1],
    ]


def test_event_time_moves_with_each_record_as_far_as_the_other_inputs_have_come() -> None:
    stage = bench(Curious)
    marks = mark_headers([50, 60, 70], [50, 49, 70])
    for others_ms, expected in ((-1, [40, 40, 40]), (55, [50, 55, 55]), (NO_OTHERS_MS, [50, 60, 70])):
        stage.context.sent.clear()
        stage.advance(40)
        stage.context.others_ms = others_ms
        stage.feed(*(pay("c", 1, when_ms=when_ms) for when_ms in (50, 49, 70)), headers=marks)
        assert [value[2] for _, value, _ in alerts(stage)] == expected


def test_expired_state_is_deleted_as_event_time_moves() -> None:
    stage = bench()
    stage.feed(pay("c1", 60, when_ms=0))
    stage.advance(timedelta(days=30) // timedelta(milliseconds=1))
    assert stage.context.stores["fraud-total"].changes() == [(b"c1", None)]
    stage.feed(pay("c1", 60, when_ms=10**10))
    assert alerts(stage) == []


class Base(sf.Operator[str, Payment, int]):
    seen: sf.Value[int] = sf.state(default=0)


class Derived(Base):
    more: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: Payment, ctx: sf.Context[int]) -> None:
        self.seen.set(self.seen.get() + value.cents)
        self.more.set(self.more.get() + 1)
        ctx.emit(self.seen.get() * 10 + self.more.get())


def test_state_and_types_are_inherited() -> None:
    stage = bench(Derived)
    stage.feed(pay("c", 1), pay("c", 2))
    assert [value for _, value, _ in alerts(stage)] == [11, 32]


def test_what_is_no_operator_is_refused() -> None:
    with pytest.raises(GraphError, match="no on_record"):
        bench(Base)
    with pytest.raises(GraphError, match=r"derived from sf\.Operator"):
        bench(Payment)  # type: ignore[arg-type]


def test_an_operator_on_a_keyed_stream_needs_no_key() -> None:
    app = sf.App("bank")
    keyed = app.stream(app.topic("payments", value=Payment)).key_by("card", name="by-card")
    app.operator("fraud", source=keyed, sink=app.topic("alerts", value=Alert))(Fraud)
    assert [stage.name for stage in app.topology().stages] == ["payments", "by-card"]
    with pytest.raises(GraphError, match="no key of its own"):
        app.operator("again", source=app.topic("payments", value=Payment))(Fraud)
