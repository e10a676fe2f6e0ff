"""Avro records in, a count per shop out; what cannot be decoded goes to a dead-letter topic.

``ORDERS_APP`` is the application's id; ``ORDERS_SCHEMA`` names the schema.
"""

from __future__ import annotations

import os
from typing import Any

import stateflow as sf

ID = os.environ["ORDERS_APP"]
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "shop", "type": "string"},
        {"name": "cents", "type": {"type": "array", "items": "long"}},
        {"name": "picture", "type": "bytes"},
    ],
}
RECURSIVE: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "shop", "type": "string"}, {"name": "part", "type": ["null", "Order"]}],
}
NOTHINGS: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "shop", "type": "string"},
        {"name": "cents", "type": {"type": "array", "items": "null"}},
    ],
}
SCHEMA = {"order": ORDER, "recursive": RECURSIVE, "nothings": NOTHINGS}[
    os.environ.get("ORDERS_SCHEMA", "order")
]

app = sf.App(ID, partitions=1)
orders = app.topic(f"{ID}-in", value=sf.Avro(SCHEMA), partitions=1)
counts = app.topic(f"{ID}-out", key=sf.String, value=sf.Json, partitions=1)
(
    app.stream(orders, on_error=sf.DeadLetter(f"{ID}-dead"))
    .key_by(lambda order: order["shop"], name="by-shop", key=sf.String)
    .count(name="orders")
    .to(counts)
)
