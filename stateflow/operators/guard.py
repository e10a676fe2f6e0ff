"""Runs a step's code over rows, and sees to the row that fails as the step's policy says."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from stateflow.errors import DecodeError, EncodeError, ProcessingError, StateflowError
from stateflow.operators.context import StageContext
from stateflow.operators.error_policy import DeadLetter, Fail, Policy, Retry
from stateflow.operators.rows import NO_OFFSET
from stateflow.operators.user_traceback import user_traceback
from stateflow.record import Headers, Record, RecordBatch

_MESSAGE_BYTES_MAX = 1000
_OF_ONE_RECORD = (DecodeError, EncodeError, ProcessingError)


class Origin:
    """The raw batch that a stage is working on, so that a failure can hand out the record as it was read."""

    def __init__(self) -> None:
        self._batch: RecordBatch | None = None
        self._timestamps_ms: list[int] = []

    def enter(self, batch: RecordBatch) -> None:
        """Begin a batch."""
        self._batch = batch
        self._timestamps_ms = list(batch.timestamps_ms)

    def sent_ms(self, batch: RecordBatch) -> list[int]:
        """The timestamps on Kafka of the rows of the raw batch, or of some of them."""
        if len(batch) == len(self._timestamps_ms):
            return self._timestamps_ms
        assert self._batch is not None, "rows are worked on between enter and leave"
        sent_ms = dict(zip(self._batch.offsets, self._timestamps_ms, strict=True))
        return [sent_ms[offset] for offset in batch.offsets]

    def leave(self) -> None:
        """The batch is done."""
        self._batch = None

    def record(self, offset: int) -> Record | None:
        """The record as it was read; None for a row that no input record stands behind."""
        batch = self._batch
        if batch is None or offset == NO_OFFSET:
            return None
        row = bisect_left(batch.offsets, offset)
        assert batch.offsets[row] == offset, "rows keep the offsets of their batch"
        headers = batch.headers[row] if batch.headers else ()
        topic, partition = batch.source
        return Record(
            topic, partition, offset, self._timestamps_ms[row], batch.keys[row], batch.values[row], headers
        )


class Guard:
    """One step's policy, at work."""

    def __init__(self, context: StageContext, origin: Origin, step: str, policy: Policy) -> None:
        self._context = context
        self._origin = origin
        self._step = step
        self._retries = policy.attempts if isinstance(policy, Retry) else 0
        self._last = policy.then if isinstance(policy, Retry) else policy

    @property
    def is_fatal(self) -> bool:
        """True when the first failure stops the task: nothing needs to be undone then."""
        return self._retries == 0 and isinstance(self._last, Fail)

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], offsets: Sequence[int]
    ) -> tuple[list[Any], list[int]]:
        """The function's result for each item that it succeeds on, and the rows that were let go.

        The function is called once per item, and again only for a retry.
        """
        results: list[Any] = []
        failed: list[int] = []
        remaining = iter(items)
        while (row := len(results) + len(failed)) < len(items):
            try:
                results.extend(map(function, remaining))  # keeps what came before an exception
                row = len(results) + len(failed)
                if row < len(items):
                    raise ProcessingError(
                        "The function raised StopIteration.", action="Let it return a value."
                    )
            except Exception as error:  # noqa: BLE001 - the policy sees to it
                row = len(results) + len(failed)
                if not self._again(partial(_append, results, function, items[row]), error, offsets[row]):
                    failed.append(row)
        return results, failed

    def run(self, attempt: Callable[[], None], offset: int) -> bool:
        """Run one record's work; False when it was let go."""
        try:
            attempt()
        except Exception as error:  # noqa: BLE001 - the policy sees to it
            return self._again(attempt, error, offset)
        return True

    def failed(self, error: Exception, offset: int) -> bool:
        """Follow the policy for a record whose work raised, without trying again; False when it is let go."""
        _pass_on_what_no_record_caused(error)
        self.refuse(error, offset)
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
        headers = self._headers(error, record, attempts)
        self._context.count("dead_letters_total")
        if record is None:
            self._context.send(topic, None, None, max(0, self._context.watermark_ms), headers)
        else:
            kept = (*record.headers, *headers)
            stamp_ms = max(0, record.timestamp_ms) if timestamp_ms is None else timestamp_ms
            self._context.send(topic, record.key, record.value, stamp_ms, kept)

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

    def _headers(self, error: Exception, record: Record | None, attempts: int) -> Headers:
        texts = {
            "sf-error-class": type(error).__name__,
            "sf-error-message": str(error),
            "sf-topic": record.topic if record else "",
            "sf-partition": str(record.partition if record else self._context.partition),
            "sf-offset": str(record.offset if record else NO_OFFSET),
            "sf-step": self._step,
            "sf-attempts": str(attempts),
        }
        return tuple((name, text.encode()[:_MESSAGE_BYTES_MAX]) for name, text in texts.items())

    def _failure(self, error: Exception, record: Record | None, attempts: int) -> StateflowError:
        fields: dict[str, object] = {"step": self._step, "attempts": attempts}
        where = f"step {self._step!r}"
        if record is not None:
            fields |= {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            where += f" at {record.topic}[{record.partition}] offset {record.offset}"
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
