"""What workers tell each other by a topic."""

from __future__ import annotations

import pytest

from stateflow.errors import TopicMissing
from stateflow.log.memory import MemoryCluster
from stateflow.runtime.standby.membership_log import MembershipLog


def test_a_topic_that_is_gone_is_named() -> None:
    log = MembershipLog(MemoryCluster(), "wc")
    with pytest.raises(TopicMissing, match="wc-members"):
        log.read(0)
    with pytest.raises(TopicMissing, match="start them again"):
        log.write(b"key", b"value")
