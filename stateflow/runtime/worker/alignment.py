"""Which input of a task is processed next: the one that is furthest behind in event time, of those that have records.

Event time of a task is the least of its inputs'. Whatever is processed of one input ahead of another waits in state,
for partners or for the end of a window: with one topic read to its end before the other, all of it. Flink calls this
watermark alignment; Kafka Streams chooses the input with the least timestamp.

It is a matter of cost alone. Nothing waits for an input that has no records at hand, and what is late, or what a join
finds, is the same in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from stateflow.record import TopicPartition

MarkOf = Callable[[TopicPartition], int]
"""How far an input of a task has come in event time, ms."""


class Alignment:
    """The tasks that have several inputs."""

    def __init__(self) -> None:
        self._inputs_of: dict[TopicPartition, tuple[tuple[TopicPartition, ...], MarkOf]] = {}

    def __contains__(self, source: TopicPartition) -> bool:
        """True for one of several inputs of a task."""
        return source in self._inputs_of

    def begin(self, inputs: Iterable[TopicPartition], mark_ms: MarkOf) -> None:
        """These are the inputs of a task."""
        together = tuple(inputs)
        if len(together) > 1:
            self._inputs_of.update(dict.fromkeys(together, (together, mark_ms)))

    def end(self, sources: Iterable[TopicPartition]) -> None:
        """These are not read any more; others are ignored."""
        for source in sources:
            self._inputs_of.pop(source, None)

    def next_of(self, source: TopicPartition, waiting: Collection[TopicPartition]) -> TopicPartition:
        """Of the inputs of this one's task that are among those waiting, as it is, the one to be processed next."""
        found = self._inputs_of.get(source)
        if found is None:
            return source
        inputs, mark_ms = found
        at_hand = [each for each in inputs if each in waiting]
        return min(at_hand, key=mark_ms) if len(at_hand) > 1 else source
