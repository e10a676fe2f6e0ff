"""What a topic takes on the disk of a broker on this machine, replaced segments that are about to go included."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Self

_LOOK_SECONDS = 0.3


class DiskSampler:
    """The most that the segments of one topic took on disk, replaced ones included, looked at now and then."""

    def __init__(self, data_dir: Path) -> None:
        self.most_bytes = 0.0
        self._data_dir, self._topic = data_dir, ""
        self._folders: list[Path] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="disk-sampler", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def watch(self, topic: str) -> None:
        """From now on look at this topic, which is there."""
        self._topic = topic

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            if self._topic:
                self.most_bytes = max(self.most_bytes, sum(map(_bytes_of, self._files())))

    def _files(self) -> list[Path]:
        if not self._folders:  # a search of everything that the broker has, so only once
            self._folders = list(self._data_dir.glob(f"**/{self._topic}-*/"))
        return [file for folder in self._folders for file in folder.glob("*.log*")]


def _bytes_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0  # deleted meanwhile
