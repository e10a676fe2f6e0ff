"""Runs a step's code over rows, and sees to the row that fails as the step's policy says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from stateflow.errors import DecodeError, EncodeError, ProcessingError, StateflowError
from stateflow.operators.steps.column_functions import ColumnFunction
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.error_policy import DeadLetter, Fail, Policy, last_of, retries_of
from stateflow.operators.steps.headers import INTERNAL
from stateflow.operators.steps.origin import Origin, Place
from stateflow.operators.steps.rows import NO_OFFSET
from stateflow.operators.steps.user_traceback import user_traceback
from stateflow.record import Headers, Record, record_bytes

R = TypeVar("R")

_MESSAGE_BYTES_MAX = 1000
_KEY_BYTES_SHOWN = 64
_OF_ONE_RECORD = (DecodeError, EncodeError, ProcessingError)


class Guard:
    """One step's policy, at work."""

    def __init__(self, context: StageContext, origin: Origin, step: str, policy: Policy) -> None:
        self._context = context
        self._origin = origin
        self._step = step
        self._policy = policy
        self._retries = retries_of(policy)
        self._last = last_of(policy)

    @property
    def lets_go(self) -> bool:
        """True when a record that fails for good is let go, so that the others of its transaction are not lost."""
        return not isinstance(self._last, Fail)

    @property
    def is_fatal(self) -> bool:
        """True when the first failure stops the task: nothing needs to be undone then."""
        return self._retries == 0 and isinstance(self._last, Fail)

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], offsets: Sequence[int]
    ) -> tuple[list[Any], list[int]]:
        """The function's result for each item that it succeeds on, and the rows that were let go.

        The function is called once per item, and again only for a retry; a column expression once for all items, and
        for each of them where that fails.
        """
        if isinstance(function, ColumnFunction):
            found = _of_many(function, items)
            if found is not None:
                return found, []
        return self.each(map(function, items), lambda row: function(items[row]), offsets)

    def each(
        self, made: Iterator[Any], again: Callable[[int], Any], offsets: Sequence[int]
    ) -> tuple[list[Any], list[int]]:
        """What ``made`` gives for the rows that it succeeds on, and the rows that were let go.

        It goes on with the next row after it has raised, as ``map`` does. ``again`` makes the result of one row.
        """
        results: list[Any] = []
        failed: list[int] = []
        while len(results) + len(failed) < len(offsets):
            try:
                results.extend(made)  # keeps what came before an exception
                if len(results) + len(failed) < len(offsets):
                    raise ProcessingError(
                        "The function raised StopIteration.", action="Let it return a value."
                    )
            except Exception as error:  # noqa: BLE001 - the policy sees to it
                row = len(results) + len(failed)
                if not self._again(partial(_append, results, again, row), error, offsets[row]):
                    failed.append(row)
        return results, failed

    def run(self, attempt: Callable[[], None], offset: int) -> bool:
        """Run one record's work; False when it was let go."""
        try:
            attempt()
        except Exception as error:  # noqa: BLE001 - the policy sees to it
            return self._again(attempt, error, offset)
        return True

    def one_of_several(self, function: Callable[..., R], *arguments: Any, offset: int = NO_OFFSET) -> list[R]:
        """The result for one of the rows that a record or timer makes, in a list; an empty one where it is let go.

        The other rows must not be undone with it: a timer is gone, and nothing would call for them again. A policy
        that may end the task is left to whoever runs the record or timer. The function must have no effects.
        """
        try:
            return [function(*arguments)]
        except Exception as error:
            if not self.lets_go:
                raise
            results: list[R] = []
            self._again(lambda: results.append(function(*arguments)), error, offset)
            return results

    def remaking(self, function: Callable[..., R]) -> Callable[..., R | None]:
        """The function for what it was called with at an earlier record, as ``remaking`` below makes it."""
        return remaking(function, self._policy)

    def failed(self, error: Exception, offset: int, attempts: int = 1) -> bool:
        """Follow the policy for a record whose work raised, without trying again; False when it is let go."""
        _pass_on_what_no_record_caused(error)
        self.refuse(error, offset, attempts)
        return False

    def refuse(self, error: Exception, offset: int, attempts: int = 1) -> None:
        """Follow the policy for a record that failed for good: returns when it is let go, else raises."""
        record = self._origin.record(offset)
        if isinstance(self._last, Fail):
            raise self._failure(error, record, attempts) from error
        if isinstance(self._last, DeadLetter):
            self.dead_letter(self._last.topic, error, offset, attempts)
        else:
            self._context.count("skipped_records_total")

    def dead_letter(
        self,
        topic: str,
        error: Exception,
        offset: int,
        attempts: int = 1,
        *,
        timestamp_ms: int | None = None,
    ) -> None:
        """Send the input record to a dead-letter topic and count it; with its own time unless another is given."""
        record = self._origin.record(offset)
        place = None if record is None else self._origin.place(record)
        headers = self._headers(error, record, place, attempts)
        self._context.count("dead_letters_total")
        if record is None:
            self._context.send(topic, None, None, max(0, self._context.watermark_ms), headers)
            return
        stamp_ms = max(0, record.timestamp_ms) if timestamp_ms is None else timestamp_ms
        own = tuple(header for header in record.headers if header[0] not in INTERNAL)
        key, value, headers = self._within_limit(topic, record.key, record.value, own, headers)
        self._context.send(topic, key, value, stamp_ms, headers)

    def _within_limit(
        self, topic: str, key: bytes | None, value: bytes | None, own: Headers, added: Headers
    ) -> tuple[bytes | None, bytes | None, Headers]:
        """A dead letter that its topic takes: the value is cut where the whole is too large, and what else must be."""
        bytes_max = self._context.record_bytes_max(topic)
        over_bytes = record_bytes(key, value, (*own, *added)) - bytes_max
        if over_bytes <= 0:
            return key, value, (*own, *added)
        added = (*added, ("sf-value-bytes", str(len(value or b"")).encode()))
        left_bytes = bytes_max - record_bytes(key, b"", (*own, *added))
        if left_bytes < 0:  # it is not the value alone: no header of its own, and no key, is worth the letter
            own, key = (), None if key is None else key[: bytes_max // 4]
            left_bytes = bytes_max - record_bytes(key, b"", added)
        return key, None if value is None else value[: max(0, left_bytes)], (*own, *added)

    def _again(self, attempt: Callable[[], None], error: Exception, offset: int) -> bool:
        for _ in range(self._retries):
            _pass_on_what_no_record_caused(error)
            self._context.count("retried_records_total")
            try:
                attempt()
            except Exception as newer:  # noqa: BLE001 - the policy below sees to it
                error = newer
            else:
                return True
        _pass_on_what_no_record_caused(error)
        self.refuse(error, offset, attempts=self._retries + 1)
        return False

    def _headers(
        self, error: Exception, record: Record | None, place: Place | None, attempts: int
    ) -> Headers:
        """What happened, and to which record: the one that began it all, where that is known."""
        named = place or record
        texts = {
            "sf-error-class": type(error).__name__,
            "sf-error-message": str(error),
            "sf-topic": named.topic if named else "",
            "sf-partition": str(named.partition if named else self._context.partition),
            "sf-offset": str(named.offset if named else NO_OFFSET),
            "sf-step": self._step,
            "sf-attempts": str(attempts),
        }
        is_rekeyed = record is not None and place is not None and place.topic != record.topic
        if record is not None and is_rekeyed:
            texts["sf-read"] = f"{record.topic}[{record.partition}] {record.offset}"
        headers = [(name, text.encode()[:_MESSAGE_BYTES_MAX]) for name, text in texts.items()]
        if place is not None and is_rekeyed and place.key is not None:
            headers.append(("sf-key", place.key[:_MESSAGE_BYTES_MAX]))
        return tuple(headers)

    def _failure(self, error: Exception, record: Record | None, attempts: int) -> StateflowError:
        fields: dict[str, object] = {"step": self._step, "attempts": attempts}
        where = f"step {self._step!r}"
        if record is not None:
            fields |= {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            where += f" at {record.topic}[{record.partition}] offset {record.offset}"
            if (
                isinstance(error, (DecodeError, EncodeError))
                and "state" in error.fields
                and record.key is not None
            ):
                where += f", key {record.key[:_KEY_BYTES_SHOWN]!r}"
        raised = user_traceback(_own(error))
        place = "" if raised is None else f" ({raised.place}, in {raised.function})"
        fields |= {} if raised is None else raised.fields()
        if isinstance(error, (DecodeError, EncodeError)):
            message = f"In {where}: {error.message}"
            return type(error)(_placed(message, place), action=error.action, **{**error.fields, **fields})
        if isinstance(error, ProcessingError) and error.__cause__ is not None:
            what = error.message
        else:
            what = f"{type(error).__name__}: {error}"
        return ProcessingError(
            f"In {where}: {what}{place}.",
            action="Correct the code or the record, or give the step on_error=Skip() or DeadLetter(topic).",
            **fields,
        )


def remaking(function: Callable[..., R], policy: Policy) -> Callable[..., R | None]:
    """The function for values that it was called with before, at a record before this one.

    Where it fails and the policy lets such values go, its result is None: the policy saw to the value in its own turn,
    and this record is not to be let go with it. A policy that ends in ``Fail`` has let none go.
    """
    if isinstance(last_of(policy), Fail):
        return function
    attempts = range(1 + retries_of(policy))

    def remade(*arguments: Any) -> R | None:
        for _ in attempts:
            try:
                return function(*arguments)
            except Exception as error:  # noqa: BLE001 - in its own turn the policy saw to it
                _pass_on_what_no_record_caused(error)
        return None

    return remade


def _of_many(function: ColumnFunction, items: Sequence[Any]) -> list[Any] | None:
    try:
        return function.of_many(items)
    except Exception:  # noqa: BLE001 - comes up again at the item that causes it
        return None


def _own(error: Exception) -> BaseException:
    """The exception that user code raised, where ours says more about it."""
    cause = error.__cause__
    return cause if isinstance(error, ProcessingError) and cause is not None else error


def _placed(message: str, place: str) -> str:
    """The sentence with a place at its end."""
    return f"{message[:-1]}{place}." if message.endswith(".") else f"{message}{place}"


def _append(results: list[Any], function: Callable[[Any], Any], item: Any) -> None:
    results.append(function(item))


def _pass_on_what_no_record_caused(error: Exception) -> None:
    """A full disk or a fenced producer is not the record's fault: no policy may swallow it."""
    if isinstance(error, StateflowError) and not isinstance(error, _OF_ONE_RECORD):
        raise error
