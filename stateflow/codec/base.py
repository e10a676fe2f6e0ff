"""What turns values into bytes and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeVar

from stateflow.errors import CatalogIncompatible, DecodeError, EncodeError, SchemaUnavailable

T = TypeVar("T")

_SHOWN_BYTES = 64


class Codec(ABC, Generic[T]):
    """Values of one type ↔ bytes. Stateless, thread-safe, never pickle.

    None stands for "no value" (a tombstone) in the ``…_many`` forms and is passed through unchanged; the
    single forms are never called with it. A codec is equal to another with the same description.

    A subclass writes ``_encode`` and ``_decode``, which may raise anything; callers only ever see
    ``EncodeError`` and ``DecodeError``.
    """

    is_ordered = False
    """True when the bytes of values sort as the values do."""
    projects: Literal["json", "msgpack"] | None = None
    """The format, where some fields of a value can be read without the others (:mod:`stateflow.codec.projected`)."""
    checks_quickly = False
    """True when ``reads_all`` takes far less than decoding."""

    @property
    def as_state(self) -> Codec[T]:
        """What verbs that keep values write them with: itself, where the catalog says all that reading takes."""
        return self

    @abstractmethod
    def _encode(self, value: T) -> bytes: ...

    @abstractmethod
    def _decode(self, data: bytes) -> T: ...

    def _encode_all(self, values: Sequence[T | None]) -> list[bytes | None]:
        """Many at once; a subclass that can do without a call per value overrides it."""
        encode = self._encode
        return [None if value is None else encode(value) for value in values]

    def _decode_all(self, rows: Sequence[bytes | None]) -> list[T | None]:
        decode = self._decode
        return [None if data is None else decode(data) for data in rows]

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The codec as JSON-able data, for the catalog: enough for ``from_description`` to build a reader."""

    def for_keys(self) -> Codec[T]:
        """The codec that writes keys: the same, with equal bytes for values that are equal.

        A codec whose values are sets, maps or contain them overrides it; ``describe`` stays as it is.
        """
        return self

    def encode(self, value: T) -> bytes:
        """The bytes of one value; raises ``EncodeError``."""
        try:
            return self._encode(value)
        except (EncodeError, SchemaUnavailable):
            raise  # a codec within this one has said what is wrong
        except Exception as cause:
            raise self._encode_error(value, cause) from cause

    def decode(self, data: bytes) -> T:
        """The value of some bytes; raises ``DecodeError``."""
        try:
            return self._decode(data)
        except (CatalogIncompatible, DecodeError, SchemaUnavailable):
            raise  # not these bytes are wrong, but what reads them; or a codec within this one has said it
        except Exception as cause:
            raise self._decode_error(data, cause) from cause

    def encode_many(self, values: Sequence[T | None]) -> list[bytes | None]:
        """The bytes of each value. Raises ``EncodeError`` with the index of the first bad one as ``row``."""
        try:
            return self._encode_all(values)
        except Exception:
            self._each(values, self.encode)  # raises at the row it is on
            raise

    def decode_many(self, rows: Sequence[bytes | None]) -> list[T | None]:
        """The value of each row. Raises ``DecodeError`` with the index of the first bad one as ``row``."""
        try:
            return self._decode_all(rows)
        except Exception:
            self._each(rows, self.decode)  # raises at the row it is on
            raise

    def reads_all(self, rows: Sequence[bytes]) -> bool:
        """Whether each of the rows can be decoded; False at the first that cannot. The values are not kept.

        Where ``checks_quickly`` is set, that takes far less than decoding them.
        """
        try:
            self.decode_many(rows)
        except DecodeError:
            return False
        return True

    def _each(self, items: Sequence[Any], convert: Any) -> None:
        for row, item in enumerate(items):
            try:
                if item is not None:
                    convert(item)
            except (EncodeError, DecodeError) as error:
                error.fields["row"] = row
                raise

    def _encode_error(self, value: object, cause: Exception) -> EncodeError:
        shown = f"{type(value).__name__} {value!r}"
        return EncodeError(
            f"{self!r} cannot encode {shown[:200]}: {cause}.",
            action="Give the topic or the state a codec that fits what the code produces.",
        )

    def _decode_error(self, data: bytes, cause: Exception) -> DecodeError:
        return DecodeError(
            f"{len(data)} bytes cannot be decoded by {self!r}: {type(cause).__name__}: {cause}.",
            action="Check the codec declared for the topic, or give what reads it on_error=Skip() or"
            " DeadLetter(topic).",
            beginning=data[:_SHOWN_BYTES].hex(),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Codec) and type(other) is type(self) and other.describe() == self.describe()

    def __hash__(self) -> int:
        return hash((type(self), self.describe()["codec"]))

    def __repr__(self) -> str:
        return type(self).__name__
