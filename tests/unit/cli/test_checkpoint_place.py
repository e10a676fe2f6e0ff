"""Which place commands about images go to: what the control topic says is read, never written to or deleted from."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateflow.catalog.model import AppEntry, Catalog, GenerationEntry, RoutingEntry, TrimEntry
from stateflow.cli.checkpoint_place import image_location
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
