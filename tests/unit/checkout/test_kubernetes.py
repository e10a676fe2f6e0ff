"""docker/spark/kubernetes.yaml: its objects are what Kubernetes knows, and what they say of each other fits."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from stateflow.spark.submit import JOBS

MANIFESTS = Path(__file__).resolve().parents[3] / "docker" / "spark" / "kubernetes.yaml"


@pytest.fixture(scope="module")
def objects() -> dict[str, dict[str, Any]]:
    found = list(YAML(typ="safe").load_all(MANIFESTS.read_text()))
    assert all({"apiVersion", "kind", "metadata"} <= each.keys() for each in found)
    return {each["kind"]: each for each in found}


@pytest.mark.parametrize("version", ["1.30", kubernetes_validate.latest_version()])
def test_every_object_follows_the_schema_of_its_kind(
    objects: dict[str, dict[str, Any]], version: str
) -> None:
    for each in objects.values():
        kubernetes_validate.validate(each, version, strict=True)
    misspelt = copy.deepcopy(objects["Deployment"])
    misspelt["spec"]["template"]["spec"]["containers"][0]["port"] = []
    with pytest.raises(kubernetes_validate.ValidationError, match="'port' was unexpected"):
        kubernetes_validate.validate(misspelt, version, strict=True)


def test_the_driver_is_found_and_may_start_executors(objects: dict[str, dict[str, Any]]) -> None:
    deployment, service = objects["Deployment"]["spec"], objects["Service"]
    pod = deployment["template"]
    assert service["spec"]["selector"] == deployment["selector"]["matchLabels"] == pod["metadata"]["labels"]
    account = objects["ServiceAccount"]["metadata"]["name"]
    assert pod["spec"]["serviceAccountName"] == account == objects["RoleBinding"]["subjects"][0]["name"]
    assert objects["RoleBinding"]["roleRef"]["name"] == objects["Role"]["metadata"]["name"]
    assert (deployment["replicas"], deployment["strategy"]["type"]) == (1, "Recreate")


def test_its_command_names_what_there_is(objects: dict[str, dict[str, Any]]) -> None:
    spec = objects["Deployment"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    words = " ".join(container["args"]).split()
    settings = dict(word.partition("=")[::2] for word in words if word.startswith("spark."))
    ports = {port["name"]: port["port"] for port in objects["Service"]["spec"]["ports"]}
    assert settings["spark.driver.host"] == objects["Service"]["metadata"]["name"]
    assert settings["spark.driver.port"] == str(ports["driver"])
    assert settings["spark.driver.blockManager.port"] == str(ports["blocks"])
    assert settings["spark.kubernetes.container.image"] == container["image"]
    assert words[words.index("new") + 1] in JOBS
    (mount,), (volume,) = container["volumeMounts"], spec["volumes"]
    assert mount["name"] == volume["name"]
    assert volume["secret"]["secretName"] == objects["Secret"]["metadata"]["name"]
    file = words[words.index("--client-config") + 1]
    assert file.rpartition("/")[0] == mount["mountPath"]
    assert file.rpartition("/")[2] in objects["Secret"]["stringData"]
