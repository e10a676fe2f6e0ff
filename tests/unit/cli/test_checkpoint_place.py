"""Which place commands about images go to: what the control topic says is read, never written to or deleted from."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateflow.catalog.model import AppEntry, Catalog, GenerationEntry, RoutingEntry, TrimEntry
from stateflow.cli.checkpoint_place import image_location
from stateflow.cli.image_generations import image_generations
from stateflow.config import AppOptions
from stateflow.errors import ConfigError

NAMED = "/mnt/somebody/elses"


def catalog(trim: TrimEntry | None) -> Catalog:
    generation = GenerationEntry(
        generation=0, state="active", routing=RoutingEntry(kind="modulo", partitions=1)
    )
    app = AppEntry(app="shop", guarantee="exactly-once", trim=trim)
    return Catalog(app=app, stages={}, stores={}, generations={0: generation})


@pytest.fixture
def trimmed() -> Catalog:
    return catalog(TrimEntry(enabled=True, images=NAMED))


def test_a_command_that_reads_finds_the_images_by_the_catalog(trimmed: Catalog) -> None:
    assert image_location(trimmed, None, writes=False) == NAMED


def test_a_command_that_writes_or_deletes_does_not_go_where_a_record_says(trimmed: Catalog) -> None:
    with pytest.raises(ConfigError, match=NAMED) as refused:
        image_location(trimmed, None, writes=True)
    assert f"--images {NAMED}" in refused.value.action


@pytest.mark.parametrize("writes", [False, True])
def test_what_the_settings_say_counts_before_the_catalog(
    trimmed: Catalog, tmp_path: Path, writes: bool
) -> None:
    assert image_location(trimmed, str(tmp_path), writes=writes) == str(tmp_path)


@pytest.mark.parametrize("writes", [False, True])
def test_without_a_place_nothing_is_done(writes: bool) -> None:
    with pytest.raises(ConfigError, match="No image location"):
        image_location(catalog(None), None, writes=writes)


@pytest.mark.slow  # the client for S3 tries again for some seconds
def test_a_place_that_cannot_be_seen_is_told_without_its_credentials() -> None:
    """What `stateflow doctor` and `scale plan` say of images."""
    address = "bucket/p?endpoint_override=127.0.0.1:1&scheme=http&region=eu"
    found = image_generations(catalog(None), AppOptions(images=f"s3://AKIA:hunter2@{address}"))
    assert found is not None
    assert found.location == f"s3://********@{address}"
    assert found.problem is not None
    assert "hunter2" not in str(found.data()) + str(found.left_behind())
