"""The log in memory: the same protocols as a real cluster, deterministic, for tests and simulation."""

from stateflow.log.memory.cluster import MemoryCluster
from stateflow.log.memory.consumer import MemoryGroupConsumer
from stateflow.log.memory.delayed import DelayedWriter
from stateflow.log.memory.reader import MemoryReader
from stateflow.log.memory.writer import MemoryWriter

__all__ = ["DelayedWriter", "MemoryCluster", "MemoryGroupConsumer", "MemoryReader", "MemoryWriter"]
