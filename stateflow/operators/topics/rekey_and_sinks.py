"""Where records leave a stage: re-keying, writing to a topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from stateflow.codec.base import Codec
from stateflow.codec.scalar import BytesCodec
from stateflow.codec.table import is_known
from stateflow.codec.windowed import WindowKeyCodec
from stateflow.errors import DecodeError, EncodeError
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.fields import picked_of
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.reads import Reads, all_of, encoded, encoded_one, reads_of
from stateflow.operators.steps.rows import left_of, where, without
from stateflow.operators.steps.size_limit import SizeLimit
from stateflow.operators.steps.step import Step
from stateflow.operators.topics.handover import Handover
from stateflow.record import RecordBatch, has_none


class RekeyStep(Step):
    """Gives each record a new key and sends it through the step's repartition topic to the next stage."""

    def __init__(
        self, choose: KeyChoice, codecs: tuple[Codec[Any], Codec[Any]], handover: Handover, guard: Guard
    ) -> None:
        super().__init__()
        self._choose = choose
        self._key, self._value = codecs
        self._handover = handover
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Encode and hand over."""
        columns = self._encoded_columns(batch)
        if columns is not None:
            self._handover.send(batch, *columns)
            return
        rows = list(zip(batch.keys, batch.values, strict=True))
        pairs, failed = self._guard.map(self._encoded, rows, batch.offsets)
        if pairs:
            keys, values = zip(*pairs, strict=True)
            self._handover.send(without(batch, failed), keys, values)

    def _encoded_columns(self, batch: RecordBatch) -> tuple[list[bytes], list[bytes | None]] | None:
        """Keys and values of a batch in which every record can be encoded; None to go record by record."""
        try:
            keys = self._key.encode_many(self._choose.of_rows(batch.keys, batch.values))
            values = encoded(self._value, batch.values)
        except Exception:  # noqa: BLE001 - comes up again at the record that causes it
            return None
        if has_none(keys) or has_none(values):
            return None
        return cast(list[bytes], keys), values

    def _encoded(self, row: tuple[bytes | None, Any]) -> tuple[bytes, bytes]:
        _, value = row
        (key,) = self._choose.of_rows(*zip(row, strict=True))
        if key is None:
            raise ValueError("the new key is None: such a record has no partition; filter it out before")
        if value is None:
            raise ValueError("the value is None: filter it out before")
        return self._key.encode(key), encoded_one(self._value, value)

    def own_codecs(self) -> Iterable[Codec[Any]]:
        """Those of the new key and the value."""
        return self._key, self._value

    def own_reads(self) -> Reads | None:
        """What the new key is chosen by."""
        return self._choose.reads()

    def reads(self, codec: Codec[Any]) -> Reads | None:
        """The same, where values travel on as they came."""
        if self._value != codec:
            return None
        return all_of([self.own_reads(), Reads(as_bytes=True)])


@dataclass(frozen=True, slots=True)
class KeyChoice:
    """How a record's new key is chosen: by its value, or by its key and its value."""

    function: Callable[..., Any]
    key: Codec[Any] | None = None
    """Codec of the key that it has, where the function is given it."""

    def of_rows(self, keys: Sequence[bytes | None], values: Sequence[Any]) -> list[Any]:
        """The new key of each row."""
        if self.key is None:
            return picked_of(self.function, values)
        return list(map(self.function, self.key.decode_many(keys), values))

    def reads(self) -> Reads | None:
        """What is read of a value for it."""
        return reads_of(self.function) if self.key is None else None


class SinkStep(Step):
    """Writes to an output topic. A value of None is written as a tombstone.

    `keys` are the codecs of keys as they are in the stage, and in the topic.
    """

    takes_tombstones = True

    def __init__(
        self,
        topic: str,
        keys: tuple[Codec[Any], Codec[Any]],
        value: Codec[Any],
        context: StageContext,
        guard: Guard,
    ) -> None:
        super().__init__()
        self._topic = topic
        self._keys = keys
        self._key = key_converter(*keys)
        self._value = value
        self._context = context
        self._guard = guard
        self._limit = SizeLimit(topic, context, guard)

    def process(self, batch: RecordBatch) -> None:
        """Encode and send, in order."""
        try:
            keys = list(map(self._key, batch.keys))
            values = encoded(self._value, batch.values)
        except (DecodeError, EncodeError):  # once more, record by record, for the policy
            self._process_one_by_one(batch)
        else:
            self._send(batch, keys, values)

    def _process_one_by_one(self, batch: RecordBatch) -> None:
        pairs = list(zip(batch.keys, batch.values, strict=True))
        both, failed = self._guard.map(self._encoded, pairs, batch.offsets)
        if both:
            keys, values = zip(*both, strict=True)
            self._send(without(batch, failed), keys, values)

    def _send(self, rows: RecordBatch, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> None:
        large = self._limit.too_large(keys, values, rows.headers, rows.offsets)
        if large:
            rows = without(rows, large)
            keys, values = left_of(keys, large), left_of(values, large)
        if len(rows):
            self._context.send_many(self._topic, keys, values, rows.timestamps_ms, rows.headers)

    def _encoded(self, pair: tuple[bytes | None, Any]) -> tuple[bytes | None, bytes | None]:
        key, value = pair
        return self._key(key), None if value is None else encoded_one(self._value, value)

    def own_codecs(self) -> Iterable[Codec[Any]]:
        """Those of the keys, as they are in the stage and in the topic, and that of the values."""
        return *self._keys, self._value

    @property
    def calls_application(self) -> bool:
        """Only if one of the codecs is the application's: all of a value is read, but by the codec alone."""
        return not all(map(is_known, self.own_codecs()))

    def reads(self, codec: Codec[Any]) -> Reads | None:
        """Nothing, where values are written as they came."""
        return Reads(as_bytes=True) if self._value == codec else None


class ChoiceStep(Step):
    """Writes each record to the topic that a function of its value chooses. The sinks are given by topic."""

    def __init__(self, choose: Callable[[Any], Any], sinks: Mapping[str, SinkStep], guard: Guard) -> None:
        super().__init__()
        self._choose = choose
        self._sinks = sinks
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Choose, and write to each topic in order."""
        chosen, failed = self._guard.map(self._name, batch.values, batch.offsets)
        kept = without(batch, failed)
        for name, sink in self._sinks.items():
            rows = where(kept, [each == name for each in chosen])
            if len(rows):
                sink.process(rows)

    def _name(self, value: Any) -> str:
        topic = self._choose(value)
        name = getattr(topic, "name", topic)
        if name not in self._sinks:
            raise ValueError(f"the chosen topic {name!r} is not among {', '.join(self._sinks)}")
        return str(name)


def key_converter(inside: Codec[Any], outside: Codec[Any]) -> Callable[[bytes | None], bytes | None]:
    """How a stream's key bytes become a topic's.

    As they are when both are written alike or the topic's are plain bytes; a windowed key becomes its inner
    key where the topic declares that one (the record's timestamp, the window's start, then tells the
    window); else decoded and encoded anew.
    """
    if isinstance(outside, BytesCodec) or outside == inside:
        return lambda key: key
    if isinstance(inside, WindowKeyCodec) and not isinstance(outside, WindowKeyCodec):
        convert, inner = key_converter(inside.key, outside), inside.inner
        return lambda key: None if key is None else convert(inner(key))
    return lambda key: None if key is None else outside.encode(inside.decode(key))
