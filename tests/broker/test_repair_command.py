"""Two bad bytes on the control topic of a real application: commands go on, `repair` takes them out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.broker.command_site import Site

pytestmark = pytest.mark.broker


def plant(site: Site, **records: bytes) -> None:
    """Write to the control topic; keys have ``_`` for ``/``."""
    writer = site.cluster.writer()
    writer.begin()
    for key, value in records.items():
        writer.send(f"{site.name}-control", key.replace("_", "/").encode(), value, partition=0)
    writer.commit()
    writer.close()


def repaired(site: Site, *options: str) -> dict[str, Any]:
    ended = site.type("repair", "--app", site.name, "--json", *options)
    assert ended.code == 0, ended.out
    found: dict[str, Any] = json.loads(ended.out)
    return found


def own_topics(site: Site) -> set[str]:
    """Other tests make topics on the same broker meanwhile."""
    return {topic for topic in site.cluster.list_topics() if site.name in topic}


def test_bad_records_end_no_command_and_are_taken_out(site: Site) -> None:
    site.topic("in", "out")
    site.feed(range(50))
    assert site.drained().code == 0
    assert repaired(site)["findings"] == []

    plant(site, cut=b"\xff\xfe", savepoint_x=b"\xff\xfe", store_nobodys=b"\xff\xfe", other_x=b"\xff\xfe")
    site.feed(range(50, 80))
    assert site.drained().code == 0
    assert sum(site.counted().values()) == 80
    assert site.type("reset", site.digits, "--dry-run").code == 0
    assert site.type("compaction", "measure", "--app", site.name, "--seconds", "0.2", "--json").code == 0
    assert site.type("savepoint", "list", "--app", site.name, "--json").code == 0

    looked = repaired(site, "--dry-run")
    kinds = {finding["key"]: finding["kind"] for finding in looked["findings"]}
    assert kinds == {"cut": "bad", "savepoint/x": "bad", "store/nobodys": "bad", "other/x": "unknown"}
    assert (looked["dry_run"], looked["records_written"]) == (True, 0)
    refused = site.type("repair", "--app", site.name, "--json")
    assert refused.error["error"] == "Interrupted", "with --json nobody can be asked"
    assert repaired(site, "--yes", "--unknown")["records_written"] == 4
    assert repaired(site)["findings"] == []


def test_an_entry_that_is_needed_is_put_back(site: Site) -> None:
    site.topic("in", "out")
    site.feed(range(50))
    assert site.drained().code == 0
    plant(site, app=b"\xff\xfe", generation_0=b"\xff\xfe")
    topics = own_topics(site)
    ended = site.type("run", site.digits, "--until-drained")
    assert (ended.code, "generation/0" in ended.err) == (40, True)
    assert f"stateflow repair --app {site.name}" in ended.err
    assert own_topics(site) == topics, "nothing was made as for a new application"
    assert repaired(site, "--yes", "--restore-older")["records_written"] == 2
    site.feed(range(50, 80))
    assert site.drained().code == 0
    assert sum(site.counted().values()) == 80


def test_a_key_to_discard_that_is_not_to_be_repaired(site: Site) -> None:
    site.topic("in", "out")
    site.feed(range(5))
    assert site.drained().code == 0
    ended = site.type("repair", "--app", site.name, "--discard", "store/none", "--yes", "--json")
    assert (ended.code, ended.error["error"]) == (2, "ConfigError")
    assert "store/none" in ended.error["message"]
    plant(site, store_nobodys=b"\xff")
    ended = site.type("repair", "--app", site.name, "--discard", "store/seen", "--yes", "--json")
    assert "store/nobodys" in ended.error["action"]
    assert [finding["key"] for finding in repaired(site, "--dry-run")["findings"]] == ["store/nobodys"]
