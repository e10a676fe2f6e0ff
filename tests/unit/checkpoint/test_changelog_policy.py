"""Without the setting `images` a process looks where the catalog says, but by no server that it names."""

from __future__ import annotations

import pytest

from stateflow.catalog.model import TrimEntry
from stateflow.checkpoint.changelog_policy import WHOLE_LOGS, ChangelogPolicy
from stateflow.errors import ConfigError


def named(location: str) -> ChangelogPolicy:
    return ChangelogPolicy(TrimEntry(enabled=True, images=location, since_ms=1, tombstones_before_ms=1))


@pytest.mark.parametrize(
    "location",
    ["/images", "s3://bucket/prefix", "s3://bucket/prefix?region=eu-west-1", "hdfs://name:8020/images"],
)
def test_the_catalog_s_place_is_taken_where_none_is_set(location: str) -> None:
    assert named(location).images(None) == location
    assert named(location).images("/other") == "/other"
    assert WHOLE_LOGS.images(None) is None


@pytest.mark.parametrize(
    "parameters",
    [
        "endpoint_override=evil.example",
        "region=x&scheme=http&endpoint_override=evil",
        "endpoint%5Foverride=evil",
        "x",
    ],
)
def test_a_server_that_only_the_catalog_names_is_shown_no_credentials(parameters: str) -> None:
    policy = named(f"s3://bucket/prefix?{parameters}")
    with pytest.raises(ConfigError, match="Only the control topic") as refused:
        policy.images(None)
    assert "images" in refused.value.action
    set_here = f"s3://bucket/prefix?{parameters}"
    assert policy.images(set_here) == set_here, "whoever operates this process has named it"
