"""Two rounds of jobs with a shuffle in between: what the first send, the second receive, in a fixed order.

A job of the first round sends *pieces* of bytes, each to the number of a job of the second. That job receives its
pieces in the order of the jobs that sent them, and of each in the order of sending, however the first round went: what
a job sent that died is gone with it, and its next attempt counts. The second round begins when the first is whole.

``Engine.shuffle`` is this done by an engine. Engines of one machine do it by files, as here; Spark by its shuffle.
"""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Generic, TypeVar

from stateflow.log.base import Cluster

Sender = TypeVar("Sender")
Receiver = TypeVar("Receiver")
Sent = TypeVar("Sent")
Found = TypeVar("Found")

Sending = Generator[tuple[int, bytes], None, Sent]
"""The pieces that a job sends, each with the number of the job that it is for; returns the job's result."""
OnDone = Callable[[Any], None]
"""Told the result of each job soon after it is done, from any thread; of a job done twice perhaps twice."""


class Pieces(Generic[Sent]):
    """What a job sends, piece by piece; ``result`` is the job's, once all are taken."""

    result: Sent

    def __init__(self, sending: Sending[Sent]) -> None:
        self._sending = sending

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Each piece with the number of the job that it is for."""
        self.result = yield from self._sending


@dataclass(frozen=True, slots=True)
class Place:
    """Where a piece is kept."""

    file: str
    offset: int
    size_bytes: int


class Inbox:
    """The pieces for one job, oldest first; they may be read several times, one at a time is in memory."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places

    @property
    def size_bytes(self) -> int:
        """Of all pieces."""
        return sum(place.size_bytes for place in self._places)

    def __iter__(self) -> Iterator[bytes]:
        """The pieces, from the first on."""
        for file, places in groupby(self._places, lambda place: place.file):
            with Path(file).open("rb") as source:
                for place in places:
                    source.seek(place.offset)
                    piece = source.read(place.size_bytes)
                    assert len(piece) == place.size_bytes, "a piece is read as it was written"
                    yield piece


class PieceFile:
    """A new file of pieces in a folder, made with the first of them."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / uuid.uuid4().hex
        self._sink: BinaryIO | None = None
        self._size_bytes = 0

    def add(self, piece: bytes) -> Place:
        """Write a piece behind the others."""
        if self._sink is None:
            self._sink = self._path.open("wb")
        self._sink.write(piece)
        place = Place(os.fspath(self._path), self._size_bytes, len(piece))
        self._size_bytes += len(piece)
        return place

    def close(self) -> None:
        """On return all pieces can be read."""
        if self._sink is not None:
            self._sink.close()


@dataclass(frozen=True, slots=True)
class _SendJob:
    send: Callable[[Cluster, Any], Sending[Any]]
    job: Any
    folder: Path


@dataclass(frozen=True, slots=True)
class _SendDone:
    result: Any
    places: tuple[tuple[int, Place], ...]


@dataclass(frozen=True, slots=True)
class _ReceiveJob:
    receive: Callable[[Cluster, Any, Inbox], Any]
    job: Any
    inbox: Inbox


class ShuffleByFiles(ABC):
    """The part of an engine of one machine that shuffles, by files that all its jobs can read."""

    @abstractmethod
    def run(
        self, work: Callable[[Cluster, Any], Any], jobs: Sequence[Any], on_done: OnDone | None = None
    ) -> list[Any]:
        """``Engine.run``."""

    def shuffle(
        self,
        send: Callable[[Cluster, Sender], Sending[Sent]],
        senders: Sequence[Sender],
        receive: Callable[[Cluster, Receiver, Inbox], Found],
        receivers: Sequence[Receiver],
        on_done: OnDone | None = None,
    ) -> tuple[list[Sent], list[Found]]:
        """Both rounds. Pieces are files in a folder of the system's temporary one, gone on return."""
        with TemporaryDirectory(prefix="stateflow-shuffle-") as folder:
            sent: list[_SendDone] = self.run(
                _send_to_file,
                [_SendJob(send, job, Path(folder)) for job in senders],
                None if on_done is None else lambda done: on_done(done.result),
            )
            places: list[list[Place]] = [[] for _ in receivers]
            for done in sent:
                for number, place in done.places:
                    places[number].append(place)
            found: list[Found] = self.run(
                _receive_from_files,
                [_ReceiveJob(receive, job, Inbox(own)) for job, own in zip(receivers, places, strict=True)],
                on_done,
            )
        return [done.result for done in sent], found


def _send_to_file(cluster: Cluster, job: _SendJob) -> _SendDone:
    file = PieceFile(job.folder)
    pieces = Pieces(job.send(cluster, job.job))
    try:
        places = tuple((number, file.add(piece)) for number, piece in pieces)
    finally:
        file.close()
    return _SendDone(pieces.result, places)


def _receive_from_files(cluster: Cluster, job: _ReceiveJob) -> Any:
    return job.receive(cluster, job.job, job.inbox)
