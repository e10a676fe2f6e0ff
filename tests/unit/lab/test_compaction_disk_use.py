"""The files of one topic, watched while they come and go."""

from __future__ import annotations

import time
from pathlib import Path

from stateflow.lab.compaction.disk_use import DiskSampler


def test_replaced_files_count_as_long_as_they_are_there(tmp_path: Path) -> None:
    folder = tmp_path / "node-1" / "t-0"
    folder.mkdir(parents=True)
    (folder / "1.log").write_bytes(bytes(1000))
    (folder / "0.log.deleted").write_bytes(bytes(500))
    (folder / "0.index").write_bytes(bytes(99))
    (tmp_path / "node-1" / "other-0").mkdir()
    (tmp_path / "node-1" / "other-0" / "0.log").write_bytes(bytes(7000))
    with DiskSampler(tmp_path) as sampler:
        sampler.watch("t")
        deadline = time.monotonic() + 30
        while not sampler.most_bytes and time.monotonic() < deadline:
            time.sleep(0.05)
        (folder / "0.log.deleted").unlink()
    assert sampler.most_bytes == 1500
