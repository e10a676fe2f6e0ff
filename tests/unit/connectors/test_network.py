"""Certificates and proxies on their way into a Java child."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from stateflow.connectors.broker import network
from stateflow.connectors.broker.java import Java, find_java
from stateflow.connectors.broker.network import (
    STORE_PASSWORD,
    certificate_bundle,
    network_arguments,
    split_pem,
)
from stateflow.errors import SetupError

PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*PROXY_VARIABLES, *(name.upper() for name in PROXY_VARIABLES), *network.BUNDLE_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STATEFLOW_CACHE", str(tmp_path / "cache"))


def test_a_bundle_is_split_into_its_certificates() -> None:
    one = "-----BEGIN CERTIFICATE-----\nAAA\n-----END CERTIFICATE-----\n"
    two = "-----BEGIN CERTIFICATE-----\nBBB\n-----END CERTIFICATE-----\n"
    assert split_pem(f"# a comment\n{one}between{two}-----BEGIN CERTIFICATE-----\ncut") == [one, two]


def test_our_variable_comes_before_the_other_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = tmp_path / "ours.pem", tmp_path / "theirs.pem"
    ours.touch()
    theirs.touch()
    monkeypatch.setenv("PIP_CERT", str(theirs))
    assert certificate_bundle() == theirs
    monkeypatch.setenv("STATEFLOW_CA_BUNDLE", str(ours))
    assert certificate_bundle() == ours


def test_proxies_become_java_properties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_keytool = Java(tmp_path / "bin" / "java", 17, "test")
    assert network_arguments(no_keytool) == []
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "localhost, .internal.example")
    assert network_arguments(no_keytool) == [
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=localhost|*.internal.example",
    ]


def test_a_private_authority_is_added_to_the_trust_store_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = find_java()
    keytool = java.home / "bin" / "keytool"
    bundle = tmp_path / "private.pem"
    bundle.write_text(_private_authority(keytool, tmp_path))
    monkeypatch.setenv("STATEFLOW_CA_BUNDLE", str(bundle))
    arguments = network_arguments(java)
    store = Path(arguments[0].partition("=")[2])
    assert arguments[1] == f"-Djavax.net.ssl.trustStorePassword={STORE_PASSWORD}"
    listed = _run(keytool, "-list", "-v", "-keystore", str(store), "-storepass", STORE_PASSWORD)
    assert "CN=private.example" in listed
    modified = store.stat().st_mtime_ns
    assert network_arguments(java) == arguments
    assert store.stat().st_mtime_ns == modified
    assert [path.name for path in store.parent.iterdir()] == [store.name]


def _private_authority(keytool: Path, folder: Path) -> str:
    """A fresh self-signed certificate, as PEM."""
    shared = ["-keystore", str(folder / "own.p12"), "-storepass", "secret-1", "-alias", "own"]
    _run(keytool, "-genkeypair", *shared, "-keyalg", "EC", "-dname", "CN=private.example", "-ext", "bc:c")
    return _run(keytool, "-exportcert", "-rfc", *shared)


def _run(keytool: Path, *arguments: str) -> str:
    done = subprocess.run([str(keytool), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_keytool_that_hangs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "java"
    for folder in (home / "bin", home / "lib" / "security"):
        folder.mkdir(parents=True)
    (home / "lib" / "security" / "cacerts").touch()
    keytool = home / "bin" / "keytool"
    keytool.write_text("#!/bin/sh\nexec sleep 1000\n")
    keytool.chmod(0o755)
    bundle = tmp_path / "ours.pem"
    bundle.touch()
    monkeypatch.setenv("STATEFLOW_CA_BUNDLE", str(bundle))
    monkeypatch.setattr(network, "KEYTOOL_TIMEOUT_SECONDS", 0.1)
    with pytest.raises(SetupError, match="keytool did not answer"):
        network_arguments(Java(home / "bin" / "java", 17, "test"))
