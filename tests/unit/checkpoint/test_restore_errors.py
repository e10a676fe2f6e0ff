"""Errors cross from one process of a restore to another as they are."""

from __future__ import annotations

import copy
from multiprocessing.reduction import ForkingPickler

import pytest

from stateflow.errors import DiskFull, StateflowError, StateLocked


@pytest.mark.parametrize("kind", [StateflowError, DiskFull, StateLocked])
def test_an_error_arrives_whole(kind: type[StateflowError]) -> None:
    error = kind("it broke.", action="mend it.", path="/x", pid=7)
    arrived = ForkingPickler.loads(ForkingPickler.dumps(error))
    for found in (arrived, copy.copy(error)):
        assert type(found) is kind
        assert str(found) == str(error)
        assert found.fields == {"path": "/x", "pid": 7}
