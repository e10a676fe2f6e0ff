"""The same work by Quix Streams. Runs in its environment, so it imports nothing of this project.

The argument is a workload as JSON; the last line of the output says what was measured.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import sys
import time
from collections.abc import Callable
from typing import Any
from zlib import crc32

_NUMBER = struct.Struct(">q")


def main(arguments: list[str]) -> None:
    """Process the input, from ``warm_records`` on against the clock, until all of it is committed."""
    from quixstreams import Application  # type: ignore[import-not-found,unused-ignore]

    load, brokers, state_dir, app_id = json.loads(arguments[0]), *arguments[1:]
    app = Application(
        broker_address=brokers,
        consumer_group=app_id,
        state_dir=state_dir,
        loglevel="ERROR",
        **load["settings"],
    )
    topic = app.topic(load["topic"], key_deserializer="bytes", value_deserializer="bytes")
    begun: list[float] = []
    totals: dict[bytes, int] = {}
    frame = app.dataframe(topic)
    frame.update(_working(load, begun, totals), stateful=True, metadata=True)
    app.run(count=load["records"])
    seconds, cpu_seconds = time.perf_counter() - begun[0], time.process_time() - begun[1]
    total = sum(crc32(key + _NUMBER.pack(number)) for key, number in totals.items())
    print(
        json.dumps(
            {
                "records": load["records"] - load["warm_records"],
                "seconds": seconds,
                "cpu_seconds": cpu_seconds,
                "digest": f"{len(totals)}:{total % (1 << 64):x}",
                "rss_bytes_max": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
            }
        ),
        flush=True,
    )
    os._exit(0)  # its clients' threads would take their time


def _working(load: dict[str, Any], begun: list[float], totals: dict[bytes, int]) -> Callable[..., None]:
    """The function of a record. What it wrote last for each key is what the results are compared by."""
    seen, warm, at, is_sum = 0, load["warm_records"], load["number_at"], load["work"] == "operator"

    def work(value: bytes, key: bytes, _timestamp: int, _headers: object, state: Any) -> None:
        nonlocal seen
        if seen == warm:
            begun.extend((time.perf_counter(), time.process_time()))
        seen += 1
        total = state.get("total", 0) + (_NUMBER.unpack_from(value, at)[0] if is_sum else 1)
        state.set("total", total)
        totals[key] = total

    return work


if __name__ == "__main__":
    main(sys.argv[1:])
