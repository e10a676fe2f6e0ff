"""The members' topic with records on it that no worker wrote: passed over, as others are read."""

from __future__ import annotations

import msgspec
import pytest

from stateflow.runtime.worker.member_records import MemberRecord, MembershipTopic, encode_member

MEMBER = MemberRecord(name="w0", member_id="id", host="h", pid=1, disk="d", generation=0)
KEYS = [b"member/w1", b"member/\xff", b"placement", b"untimely/x", b"waiting/x", b"\xff\xfe", b"other/x"]
VALUES = [
    b"\xff\xfe",
    b"{",
    b"[]",
    b'{"name":"\xff"}',
    b'{"more":' + b"[" * 100_000,
    b'{"name":"w1","pid":1e999}',
]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("key", KEYS)
def test_what_no_worker_wrote_is_passed_over(key: bytes, value: bytes) -> None:
    topic = MembershipTopic()
    topic.take(*encode_member(MEMBER))
    topic.take(key, value)
    assert topic.members == {"w0": MEMBER}
    assert topic.placement is None
    assert not topic.out_of_bounds
    assert not topic.waiting


def test_fields_of_a_newer_version_do_not_hide_a_member() -> None:
    topic = MembershipTopic()
    key, value = encode_member(MEMBER)
    topic.take(key, msgspec.json.encode({**msgspec.json.decode(value), "more": 1}))
    assert topic.members == {"w0": MEMBER}
