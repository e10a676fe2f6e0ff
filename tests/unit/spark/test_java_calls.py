"""What is told of a call that Spark's Java process does not answer."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from stateflow.spark.java import judged_by_java


def test_a_call_that_fails_amid_an_interrupt_is_the_interrupt() -> None:
    """pyspark ends each call with another one, which meets what the first has left on the connection."""
    with pytest.raises(KeyboardInterrupt), judged_by_java():
        _fail_amid_an_interrupt()


def test_an_error_without_an_interrupt_stays_what_it_is() -> None:
    with pytest.raises(Py4JError, match="no such method"), judged_by_java():
        raise Py4JError("no such method")


def _fail_amid_an_interrupt() -> None:
    try:
        try:
            raise KeyboardInterrupt
        finally:
            raise Py4JNetworkError("Answer from Java side is empty")
    finally:
        raise ConnectionResetError
