"""State that follows the source's own partitions: the producer chose them by the key.

``SHELVES_APP`` is the application's id.
"""

from __future__ import annotations

import os

import stateflow as sf

ID = os.environ["SHELVES_APP"]

app = sf.App(ID, partitions=1)
books = app.topic(f"{ID}-in", key=sf.String, value=sf.Integer, partitions=1)
totals = app.topic(f"{ID}-out", key=sf.String, value=sf.Json, partitions=1)
app.stream(books, co_partitioned=True).sum(name="pages").to(totals)
