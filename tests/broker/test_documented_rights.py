"""The rights that docs/security.md lists suffice, on a broker that refuses everything else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from stateflow.cli.main import run
from stateflow.lab.network.guarded_broker import USER, Guarded
from stateflow.log.base import TopicSpec
from stateflow.log.kafka import connect
from tests.waiting import wait_until

pytestmark = pytest.mark.broker
PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
READING, WORKERS, CHANGING = 0, 1, 2
APP = "rights"
SHOP = f"""
import stateflow as sf

app = sf.App("{APP}", partitions=2)
orders = app.topic("orders", value=dict)
counts = app.topic("counts", key=str, value=int)
app.stream(orders).key_by("word", name="by-word", key=str).count(name="totals").to(counts)
"""
KINDS = {
    "group": ResourceType.GROUP,
    "topic": ResourceType.TOPIC,
    "transactional": ResourceType.TRANSACTIONAL_ID,
}
Right = tuple[ResourceType, str, str]
Give = Callable[[int], None]


class Strict(Guarded):
    """A broker where nothing is allowed that no rule allows."""

    def overrides(self, controller_port: int, store: Path) -> dict[str, object]:
        return {**super().overrides(controller_port, store), "allow.everyone.if.no.acl.found": "false"}


def documented(column: int) -> list[Right]:
    """The rights of a column of the table: kind, name (a pattern where it ends in a star) and operation."""
    rows = re.findall(
        r"^\| ((?:topic|group|transactional).*?) \|(.*?)\|(.*?)\|(.*?)\|$", PAGE.read_text(), re.M
    )
    assert len(rows) == 8
    found = []
    for resource, *columns in rows:
        kind = KINDS[re.match("[a-z]+?(?=s? )", resource)[0]]  # type: ignore[index]
        quoted = re.search("`(.*?)`", resource)
        read_or_written = "orders" if "sources" in resource else "counts"
        name = read_or_written if quoted is None else quoted[1].replace("<app>", APP)
        found += [(kind, name, operation) for operation in re.findall("[A-Z_]+", columns[column])]
    return found


def rule(kind: ResourceType, name: str, operation: str) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if name.endswith("*") else ResourcePatternType.LITERAL
    allowed = getattr(AclOperation, operation), AclPermissionType.ALLOW
    return AclBinding(kind, name.removesuffix("*"), pattern, f"User:{USER}", "*", *allowed)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Strict]:
    made = Strict(tmp_path_factory.mktemp("rights"))
    with made.kafka:
        cluster = connect(made.kafka.bootstrap)
        cluster.create([TopicSpec("orders", 2, 1, {}), TopicSpec("counts", 2, 1, {})])
        writer = cluster.writer()
        for number in range(20):
            writer.send("orders", None, json.dumps({"word": f"w{number % 7}"}).encode(), partition=number % 2)
        writer.commit()
        writer.close()
        cluster.close()
        yield made


@pytest.fixture
def give(strict: Strict, monkeypatch: pytest.MonkeyPatch) -> Give:
    """Gives the user the rights of a column, and no others."""
    admin = AdminClient({"bootstrap.servers": strict.kafka.bootstrap})
    anything: Any = None  # which the stubs know nothing of
    everything = AclBindingFilter(
        ResourceType.ANY,
        anything,
        ResourcePatternType.ANY,
        anything,
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    for name, value in strict.settings("SASL_PLAINTEXT", "PLAIN").items():
        monkeypatch.setenv(f"STATEFLOW_CLIENT__{name.upper().replace('.', '_')}", str(value))
    monkeypatch.setenv("STATEFLOW_BROKERS", strict.address("SASL_PLAINTEXT"))

    def give(column: int) -> None:
        for answer in admin.delete_acls([everything]).values():
            answer.result(10)
        rules = {rule(*right) for right in documented(column)}
        for answer in admin.create_acls(list(rules)).values():
            answer.result(10)
        wait_until(
            lambda: set(admin.describe_acls(everything).result(10)) == rules, "the broker has the rules"
        )

    return give


def test_every_kind_of_command_does_with_its_rights(
    give: Give, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(SHOP)
    app, disk = f"{tmp_path / 'shop.py'}:app", ("--state-dir", str(tmp_path / "state"))
    give(WORKERS)
    assert run(["run", app, "--until-drained", *disk]) == 0
    assert run(["run", app, "--until-drained", "--standby", "1", *disk]) == 0
    give(READING)
    assert run(["workers", app]) == 0
    assert run(["state", "get", "totals", "w1", "--app", APP, *disk]) == 0
    assert run(["restore", app, "--to", str(tmp_path / "restored"), "--workers", "1"]) == 0
    assert run(["scale", "plan", app, "--partitions", "3"]) == 0
    give(CHANGING)
    assert run(["savepoint", "create", app, "one", "--to", str(tmp_path / "kept"), *disk]) == 0
    assert run(["scale", "start", app, "--partitions", "3", "--engine", "local"]) == 0
    assert run(["scale", "finalize", app, "--yes"]) == 0
    assert run(["reset", app, "--yes", *disk]) == 0
