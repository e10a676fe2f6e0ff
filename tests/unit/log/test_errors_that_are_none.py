"""The client library may raise its error object itself, which is no exception: it is typed like any other."""

from __future__ import annotations

import ctypes

import pytest
from confluent_kafka import KafkaError

from stateflow.errors import ProducerFenced
from stateflow.log.kafka.writer import KafkaWriter


def raise_no_exception(_seconds: float) -> int:
    """As the library's C code does it, past the checks of the interpreter."""
    error = KafkaError(KafkaError._FENCED, "fenced", True)
    restore = ctypes.pythonapi.PyErr_Restore
    restore.argtypes, restore.restype = [ctypes.py_object, ctypes.py_object, ctypes.c_void_p], None
    for taken_over in (KafkaError, error):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(taken_over))
    restore(KafkaError, error, None)
    raise AssertionError("the error is there already")


def test_a_fenced_writer_says_so() -> None:
    writer = KafkaWriter.__new__(KafkaWriter)
    writer._fatal, writer._transactional_id, writer._in_transaction = None, "id", True
    with pytest.raises(ProducerFenced):
        writer._serve_reports(raise_no_exception, 0.0)
