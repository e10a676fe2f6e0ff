"""The application of the study, as a user would write and run it; the environment says what it is called.

Orders are counted per customer in tumbling windows, added up per shop in sessions and for good, joined with their
payments, and balanced against them by an operator with two inputs. Everything that is not said here is a default.
"""

from __future__ import annotations

import os
from datetime import timedelta

import stateflow as sf
from stateflow.lab.chaos.shop import GAP_MS, GRACE_MS, PAID_WITHIN_MS, WINDOW_MS, Order, Payment

ID = os.environ.get("CHAOS_APP", "chaos")
GRACE = timedelta(milliseconds=GRACE_MS)


class Balance(sf.Operator[str, object, str]):
    """What a customer owes. Tells each order and payment once, with the total of its kind so far."""

    ordered: sf.Value[int] = sf.state(default=0)
    paid: sf.Value[int] = sf.state(default=0)

    def on_order(self, order: Order, ctx: sf.Context[str]) -> None:
        """More is owed."""
        self.ordered.set(self.ordered.get() + order.cents)
        ctx.emit(f"order {order.id} {self.ordered.get()}")

    def on_payment(self, payment: Payment, ctx: sf.Context[str]) -> None:
        """Less is owed."""
        self.paid.set(self.paid.get() + payment.cents)
        ctx.emit(f"payment {payment.id} {self.paid.get()}")


def pair(order: Order, payment: Payment | None) -> str:
    """A row of the join."""
    return f"{order.id} {payment.id if payment else 'unpaid'}"


app = sf.App(ID, guarantee="exactly-once", partitions=4)
order_topic = app.topic(f"{ID}-orders", value=Order)
payment_topic = app.topic(f"{ID}-payments", value=Payment)
outputs = {
    name: app.topic(f"{ID}-{name}", key=sf.String, value=sf.String)
    for name in ("windows", "sessions", "shops", "balance", "pairs")
}
orders, payments = app.stream(order_topic), app.stream(payment_topic)
by_customer = orders.key_by("customer", name="by-customer", key=str)
by_shop = orders.key_by("shop", name="by-shop", key=str)
paid_by_customer = payments.key_by("customer", name="paid-by-customer", key=str)

minutes = by_customer.window(sf.Tumbling(timedelta(milliseconds=WINDOW_MS), grace=GRACE), emit="on_close")
minutes.count(name="per-window").map(str).to(outputs["windows"])

sessions = by_shop.window(sf.Session(timedelta(milliseconds=GAP_MS), grace=GRACE), emit="on_close")
sessions.sum("cents", name="per-session").map(str).to(outputs["sessions"])

by_shop.sum("cents", name="shops").map(str).to(outputs["shops"])

app.process(
    Balance,
    sf.port(by_customer, Balance.on_order),
    sf.port(paid_by_customer, Balance.on_payment),
    name="balance",
).to(outputs["balance"])

orders.key_by("id", name="by-order", key=str).left_join(
    payments.key_by("order", name="paid-by-order", key=str),
    pair,
    name="pairs",
    within=sf.Within(timedelta(0), timedelta(milliseconds=PAID_WITHIN_MS), grace=GRACE),
).to(outputs["pairs"])
