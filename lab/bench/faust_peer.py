"""The same work by Faust. Runs in its environment, so it imports nothing of this project.

The argument is a workload as JSON; the last line of the output says what was measured. Exactly-once, Faust writes its
changelogs in transactions. State is in RocksDB, by the same package as ours.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import struct
import sys
import time
from typing import Any
from zlib import crc32

_NUMBER = struct.Struct(">q")
_LOOK_SECONDS = 0.02


def main(arguments: list[str]) -> None:
    """Process the input, from ``warm_records`` on against the clock, until all of it is committed."""
    load, brokers, state_dir, app_id = json.loads(arguments[0]), *arguments[1:]
    asyncio.run(_work(load, brokers, state_dir, app_id))


async def _work(load: dict[str, Any], brokers: str, state_dir: str, app_id: str) -> None:
    import faust  # type: ignore[import-not-found,unused-ignore]

    app = faust.App(
        app_id,
        broker=f"kafka://{brokers}",
        datadir=state_dir,
        web_enabled=False,
        **load["settings"],
    )
    topic = app.topic(
        load["topic"], key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw"
    )
    totals = app.Table("totals", default=int, partitions=load["partitions"])
    seen, warm, at, is_sum = 0, load["warm_records"], load["number_at"], load["work"] == "operator"
    begun: list[float] = []
    newest: dict[bytes, int] = {}

    async def work(stream: Any) -> None:
        nonlocal seen
        async for key, value in stream.items():
            if seen == warm:
                begun.extend((time.perf_counter(), time.process_time()))
            seen += 1
            name = key.decode()
            total = totals[name] + (_NUMBER.unpack_from(value, at)[0] if is_sum else 1)
            totals[name] = total
            newest[key] = total

    app.agent(topic)(work)
    worker = faust.Worker(
        app, loglevel="ERROR", redirect_stdouts=False, quiet=True, loop=asyncio.get_running_loop()
    )
    running = asyncio.create_task(worker.start())  # which only returns when it is told to stop
    while seen < load["records"] or not _is_committed(app, load):
        if running.done():
            running.result()
            raise RuntimeError("the worker has stopped by itself")
        await asyncio.sleep(_LOOK_SECONDS)
    seconds, cpu_seconds = time.perf_counter() - begun[0], time.process_time() - begun[1]
    total = sum(crc32(key + _NUMBER.pack(number)) for key, number in newest.items())
    print()  # behind what was written to hide the cursor
    print(
        json.dumps(
            {
                "records": load["records"] - warm,
                "seconds": seconds,
                "cpu_seconds": cpu_seconds,
                "digest": f"{len(newest)}:{total % (1 << 64):x}",
                "rss_bytes_max": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
            }
        ),
        flush=True,
    )
    os._exit(0)  # its services would take their time


def _is_committed(app: Any, load: dict[str, Any]) -> bool:
    from faust.types import TP  # type: ignore[import-not-found,unused-ignore]

    partitions = [TP(load["topic"], number) for number in range(load["partitions"])]
    committed = [int(app.consumer._committed_offset.get(partition) or 0) for partition in partitions]
    return sum(committed) >= int(load["records"])


if __name__ == "__main__":
    main(sys.argv[1:])
