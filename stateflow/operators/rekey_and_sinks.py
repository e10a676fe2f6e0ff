"""Where records leave a stage: re-keying, writing to a topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stateflow.codec.base import Codec
from stateflow.codec.scalar import BytesCodec
from stateflow.codec.windowed import WindowKeyCodec
from stateflow.errors import DecodeError, EncodeError
from stateflow.operators.context import StageContext
from stateflow.operators.guard import Guard
from stateflow.operators.rows import without
from stateflow.operators.step import Step
from stateflow.record import RecordBatch


class RekeyStep(Step):
    """Gives each record a new key and sends it through the step's repartition topic to the next stage."""

    def __init__(
        self,
        name: str,
        key_of: Callable[[Any], Any],
        codecs: tuple[Codec[Any], Codec[Any]],
        context: StageContext,
        guard: Guard,
    ) -> None:
        super().__init__()
        self._name = name
        self._key_of = key_of
        self._key, self._value = codecs
        self._context = context
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Encode and hand over."""
        columns = self._encoded_columns(batch.values)
        if columns is not None:
            self._context.rekey_many(self._name, *columns, batch.timestamps_ms, batch.marks_ms)
            return
        pairs, failed = self._guard.map(self._encoded, batch.values, batch.offsets)
        if pairs:
            keys, values = zip(*pairs, strict=True)
            kept = without(batch, failed)
            self._context.rekey_many(self._name, keys, values, kept.timestamps_ms, kept.marks_ms)

    def _encoded_columns(self, values: list[Any]) -> tuple[list[bytes], list[bytes | None]] | None:
        """Keys and values of a batch in which every record can be encoded; None to go record by record."""
        try:
            keys = self._key.encode_many(list(map(self._key_of, values)))
            encoded = self._value.encode_many(values)
        except Exception:  # noqa: BLE001 - comes up again at the record that causes it
            return None
        present = [key for key in keys if key is not None]
        return None if len(present) < len(values) or None in encoded else (present, encoded)

    def _encoded(self, value: Any) -> tuple[bytes, bytes]:
        key = self._key_of(value)
        if key is None:
            raise ValueError("the new key is None: such a record has no partition; filter it out before")
        if value is None:
            raise ValueError("the value is None: filter it out before")
        return self._key.encode(key), self._value.encode(value)


class SinkStep(Step):
    """Writes to an output topic. A value of None is written as a tombstone."""

    takes_tombstones = True

    def __init__(
        self,
        topic: str,
        key: Callable[[bytes | None], bytes | None],
        value: Codec[Any],
        context: StageContext,
        guard: Guard,
    ) -> None:
        super().__init__()
        self._topic = topic
        self._key = key
        self._value = value
        self._context = context
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Encode and send, in order."""
        try:
            keys = list(map(self._key, batch.keys))
            values = self._value.encode_many(batch.values)
        except (DecodeError, EncodeError):  # once more, record by record, for the policy
            self._process_one_by_one(batch)
        else:
            self._context.send_many(self._topic, keys, values, batch.timestamps_ms)

    def _process_one_by_one(self, batch: RecordBatch) -> None:
        pairs = list(zip(batch.keys, batch.values, strict=True))
        encoded, failed = self._guard.map(self._encoded, pairs, batch.offsets)
        if encoded:
            keys, values = zip(*encoded, strict=True)
            self._context.send_many(self._topic, keys, values, without(batch, failed).timestamps_ms)

    def _encoded(self, pair: tuple[bytes | None, Any]) -> tuple[bytes | None, bytes | None]:
        key, value = pair
        return self._key(key), None if value is None else self._value.encode(value)


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
