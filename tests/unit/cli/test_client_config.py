"""Client settings of commands without an application: where they come from, and what a JVM's file is turned into."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateflow.errors import ConfigError
from stateflow.log.client_file import client_settings, read_properties, translated


def test_a_properties_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "# a comment\n! another\n\n  security.protocol = SASL_SSL \nsasl.username: tuner\n"
        "sasl.password=a=b:c \\\n    d\n"
    )
    assert read_properties(path) == {
        "security.protocol": "SASL_SSL",
        "sasl.username": "tuner",
        "sasl.password": "a=b:c d",
    }
    path.write_text("nonsense\n")
    with pytest.raises(ConfigError, match="Line 1"):
        read_properties(path)


def test_a_jaas_line_becomes_user_and_password() -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    jaas = f'{module} required username="tu\\"ner" password=\'a b;c\' ;'
    found = translated({"sasl.jaas.config": jaas, "sasl.mechanism": "SCRAM-SHA-256"})
    assert found == {
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": 'tu"ner',
        "sasl.password": "a b;c",
    }
    with pytest.raises(ConfigError) as caught:
        translated({"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required canary=1;"})
    assert "canary" not in str(caught.value)


def test_pem_stores_become_files_and_java_ones_are_refused() -> None:
    found = translated(
        {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.pem",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": "/me.pem",
        }
    )
    assert found == {
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
    }
    with pytest.raises(ConfigError, match=r"ssl\.ca\.location"):
        translated({"ssl.truststore.location": "/trust.jks"})


def test_the_file_wins_over_the_environment_and_that_over_the_settings_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stateflow.toml").write_text('[client]\n"sasl.username" = "toml"\n"client.rack" = "r1"\n')
    monkeypatch.setenv("STATEFLOW_CLIENT__SASL_USERNAME", "environment")
    monkeypatch.setenv("STATEFLOW_CLIENT__SASL_PASSWORD", "secret")
    assert client_settings(None)["sasl.username"] == "environment"
    path = tmp_path / "client.properties"
    path.write_text("sasl.username=file\nbootstrap.servers=b:9092\n")
    assert client_settings(path) == {
        "client.rack": "r1",
        "sasl.username": "file",
        "sasl.password": "secret",
        "bootstrap.servers": "b:9092",
    }
