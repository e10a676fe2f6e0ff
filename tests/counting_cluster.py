"""A cluster that counts the clients that are made for it."""

from __future__ import annotations

from stateflow.log.base import Cluster, Reader, Writer
from stateflow.log.forwarding import ForwardingCluster


class CountingCluster(ForwardingCluster):
    """``readers`` so far, and the transactional ids of ``writers``."""

    def __init__(self, inner: Cluster) -> None:
        super().__init__(inner)
        self.readers = 0
        self.writers: list[str | None] = []

    def reader(self, *, follows: bool = False) -> Reader:
        self.readers += 1
        return super().reader(follows=follows)

    def writer(self, transactional_id: str | None = None) -> Writer:
        self.writers.append(transactional_id)
        return super().writer(transactional_id)
