"""Types of settings: what a number or a text may be, and how an error says it.

Each number has a bound above, too: what lies beyond it is a typing error or infinity, and would fail far from the
setting, in a client or the system.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from stateflow.addresses import PORT_MAX
from stateflow.memory import MEMORY_BYTES_MIN

PARTITIONS_MAX = 1_000_000
"""Of a topic. Brokers refuse far fewer."""
COUNT_MAX = (1 << 31) - 1
SECONDS_MAX = 1_000_000_000
"""Some thirty years."""
BYTES_MAX = 1 << 50

Count = Annotated[int, Meta(ge=1, le=COUNT_MAX)]
Seconds = Annotated[float, Meta(gt=0, le=SECONDS_MAX)]
ByteCount = Annotated[int, Meta(ge=0, le=BYTES_MAX)]
DirtyBytes = Annotated[int, Meta(ge=1, le=BYTES_MAX)]
MemoryLimit = Annotated[int, Meta(ge=MEMORY_BYTES_MIN, le=BYTES_MAX)]
WriterCount = Annotated[int, Meta(ge=0, le=64)]
CopyCount = Annotated[int, Meta(ge=0, le=16)]
ThreadCount = Annotated[int, Meta(ge=1, le=1_000)]
PartitionCount = Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)]
ReplicaCount = Annotated[int, Meta(ge=1, le=(1 << 15) - 1)]
Port = Annotated[int, Meta(ge=0, le=PORT_MAX)]
Text = Annotated[str, Meta(min_length=1)]


def advice(hint: Any) -> str:
    """What to give for a setting of this type."""
    if typing.get_origin(hint) is Literal:
        return f"It is one of {', '.join(typing.get_args(hint))}"
    if hint is Path:
        return "Give a path"
    for meta in _metas(hint):
        if meta.gt is not None:
            return f"Give a number above {meta.gt:,}, at most {meta.le:,}"
        if meta.ge is not None:
            return f"Give a whole number from {meta.ge:,} to {meta.le:,}"
        if meta.min_length is not None:
            return "Give a text, or leave the setting out"
    return "Correct it"


def _metas(hint: Any) -> Iterator[Meta]:
    """Of the type itself, or of those that it is a union of."""
    for part in (hint, *typing.get_args(hint)):
        yield from (meta for meta in getattr(part, "__metadata__", ()) if isinstance(meta, Meta))
