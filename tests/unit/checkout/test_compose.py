"""docker-compose.yml: valid by the Compose specification, and what the documentation says of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[3]
COMPOSE = ROOT / "docker-compose.yml"
PROFILES = {
    None: {"kafka"},
    "spark": {"spark-master", "spark-worker"},
    "observe": {"jmx-exporter", "prometheus", "grafana"},
    "s3": {"s3"},
    "registry": {"registry"},
}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(COMPOSE.read_text())
    return loaded


def test_follows_the_compose_specification() -> None:
    arguments = ["--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("profile", PROFILES)
def test_profile_holds_its_services(compose: dict[str, Any], profile: str | None) -> None:
    services = {
        name for name, service in compose["services"].items() if service.get("profiles", [None]) == [profile]
    }
    assert services == PROFILES[profile]


def test_every_service_has_a_health_check_a_memory_limit_and_restarts(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["healthcheck"]["test"], name
        assert service["mem_limit"], name
        assert service["restart"] == "unless-stopped", name


def test_ports_are_bound_to_loopback_and_differ(compose: dict[str, Any]) -> None:
    published = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len({port.split(":", 1)[1] for port in published}) == len(published)


def test_kafka_keeps_its_promises(compose: dict[str, Any]) -> None:
    kafka = compose["services"]["kafka"]
    environment = kafka["environment"]
    assert kafka["image"] == "apache/kafka:${KAFKA_VERSION:-4.3.1}"
    assert environment["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    listeners = {listener.split(":")[0] for listener in environment["KAFKA_LISTENERS"].split(",")}
    assert listeners == {"HOST", "DOCKER", "CONTROLLER"}
    for name in ("OFFSETS_TOPIC", "TRANSACTION_STATE_LOG", "SHARE_COORDINATOR_STATE_TOPIC"):
        assert environment[f"KAFKA_{name}_REPLICATION_FACTOR"] == 1
    assert kafka["stop_grace_period"] == "30s"


def test_kafka_version_is_the_embedded_brokers(compose: dict[str, Any]) -> None:
    lock = json.loads((ROOT / "connectors" / "broker" / "kafka-broker.json").read_text())
    assert lock["version"] in compose["services"]["kafka"]["image"]


def test_every_mounted_or_built_file_exists(compose: dict[str, Any]) -> None:
    named_volumes = set(compose["volumes"])
    used_volumes = set()
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (ROOT / source).exists(), source
            else:
                used_volumes.add(source)
        build = service.get("build")
        if build:
            assert (ROOT / build["context"] / build.get("dockerfile", "Dockerfile")).is_file()
    assert used_volumes == named_volumes


def test_images_are_pinned(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        if "build" not in service:
            tag = service["image"].partition(":")[2]
            assert tag, name
            assert "latest" not in tag, name


def test_configuration_files_can_be_read() -> None:
    yaml = YAML(typ="safe")
    exporter = yaml.load((ROOT / "docker/jmx-exporter/kafka.yml").read_text())
    assert exporter["hostPort"] == "kafka:9999"
    prometheus = yaml.load((ROOT / "docker/prometheus/prometheus.yml").read_text())
    broker, workers = prometheus["scrape_configs"]
    assert broker["static_configs"] == [{"targets": ["jmx-exporter:9404"]}]
    ports = [int(target.rpartition(":")[2]) for target in workers["static_configs"][0]["targets"]]
    assert ports == list(range(ports[0], ports[0] + 4)), "workers of one run take ports in a row"
    identities = json.loads((ROOT / "docker/seaweedfs/s3.json").read_text())["identities"]
    assert [identity["name"] for identity in identities] == ["stateflow"]


def test_dashboard_uses_only_metrics_that_the_exporter_names() -> None:
    dashboard = json.loads((ROOT / "docker/grafana/dashboards/kafka.json").read_text())
    rules = (ROOT / "docker/jmx-exporter/kafka.yml").read_text()
    prefixes = (
        "kafka_log_",
        "kafka_topic_",
        "kafka_request_ms",
        "kafka_process_cpu_seconds_total",
        "kafka_heap_used",
    )
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            assert any(prefix in target["expr"] for prefix in prefixes), target["expr"]
    assert all(prefix in rules for prefix in prefixes)


def test_docker_build_sees_what_the_spark_image_copies() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for line in (ROOT / "docker/spark/Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert f"!{source}" in ignored, source
                assert (ROOT / source).exists(), source
