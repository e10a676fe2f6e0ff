"""A process that has as many files open as it may, and its databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateflow.errors import TooManyOpenFiles
from tests.conformance.test_store_rocks import opened, start_child

CROWDED = """
    import resource
    from stateflow.errors import TooManyOpenFiles
    resources = RocksResources(write_buffer_bytes=2 << 20)
    when_opened = sys.argv[2] == "open"
    if not when_opened:
        stores = RocksTaskStores.open(place(sys.argv[1]), ["a"], resources)
    import os
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, 4096))
    try:
        if when_opened:
            stores = RocksTaskStores.open(place(sys.argv[1]), ["a"], resources)
        for n in range(100_000):
            stores.apply({"a": [(b"%08d" % n, os.urandom(2000))]}, {"a": StorePosition("t", n + 1)})
    except TooManyOpenFiles as error:
        print("crowded", error.exit_code, flush=True)
"""


@pytest.mark.parametrize("when", ["open", "write"])
def test_too_many_open_files_are_no_full_disk_and_no_damage(tmp_path: Path, when: str) -> None:
    opened(tmp_path).close()
    child = start_child(CROWDED, str(tmp_path), when)
    output, _ = child.communicate(timeout=60)
    assert output.split() == ["crowded", str(TooManyOpenFiles.exit_code)]
    opened(tmp_path).close()
