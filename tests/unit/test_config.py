"""Where settings come from, which one wins, and what is never shown."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from stateflow.config import AppOptions, resolve
from stateflow.errors import ConfigError

SECRET = "canary-hunter2"
NUMBERS = [
    setting.name
    for setting in fields(AppOptions)
    if re.search("Count|Seconds|Bytes|Limit|Port", str(setting.type))
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_later_sources_win(here: Path) -> None:
    (here / "stateflow.toml").write_text(
        """
        partitions = 2
        replication = 3
        brokers = "file:1"
        [app.shop]
        replication = 4
        brokers = "own:1"
        [app.other]
        partitions = 99
        """
    )
    code = AppOptions(partitions=1, member="m", poll_records_max=7)
    settings = resolve(
        "shop", code, {"brokers": "line:1"}, {"STATEFLOW_BROKERS": "env:1", "STATEFLOW_PARTITIONS": "6"}
    )
    options, origins = settings.options, settings.origins
    assert (options.brokers, origins["brokers"]) == ("line:1", "command line")
    assert (options.partitions, origins["partitions"]) == (6, "environment STATEFLOW_PARTITIONS")
    assert (options.replication, origins["replication"]) == (4, "file stateflow.toml [app.shop]")
    assert (options.poll_records_max, origins["poll_records_max"]) == (7, "code")
    assert (options.idle_seconds, origins["idle_seconds"]) == (5.0, "default")


def test_client_settings_are_brought_together_and_handed_on(here: Path) -> None:
    (here / "named.toml").write_text('[client]\n"security.protocol" = "SASL_SSL"\n"sasl.username" = "file"\n')
    environment = {
        "STATEFLOW_CONFIG": "named.toml",
        "STATEFLOW_CLIENT__SASL_USERNAME": "env",
        "STATEFLOW_CLIENT__SASL_PASSWORD": SECRET,
    }
    settings = resolve("shop", AppOptions(client={"linger.ms": 5}), {}, environment)
    assert settings.options.client == {
        "linger.ms": 5,
        "security.protocol": "SASL_SSL",
        "sasl.username": "env",
        "sasl.password": SECRET,
    }
    shown = {setting.name: setting for setting in settings.shown()}
    assert shown["client.sasl.password"].value == "********"
    assert shown["client.sasl.username"].origin == "environment STATEFLOW_CLIENT__SASL_USERNAME"
    assert SECRET not in repr(settings.options) + repr(settings.shown())


def test_credentials_in_the_place_of_images_are_not_shown() -> None:
    for place in (f"s3://me:{SECRET}@bucket/images", f"s3://bucket/images?secret_key={SECRET}"):
        settings = resolve("shop", AppOptions(images=place), {}, {})
        (images,) = [setting for setting in settings.shown() if setting.name == "images"]
        assert SECRET not in repr(settings.shown())
        assert "bucket/images" in images.value


def test_a_refused_value_is_named_without_its_credentials(tmp_path: Path) -> None:
    (tmp_path / "named.toml").write_text(f'images = ["s3://me:{SECRET}@bucket/images"]')
    with pytest.raises(ConfigError, match="images") as caught:
        resolve("shop", AppOptions(), {}, {"STATEFLOW_CONFIG": str(tmp_path / "named.toml")})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("partitions = 0", "partitions"),
        ('partitions = "many"', "partitions"),
        ("partitons = 3", "no setting 'partitons'"),
        ('guarantee = "maybe"', "guarantee"),
        ("commit_interval_seconds = -1", "commit_interval_seconds"),
        ("partitions = ", "cannot be read"),
    ],
)
def test_a_bad_file_is_refused_and_named(here: Path, text: str, why: str) -> None:
    (here / "stateflow.toml").write_text(text)
    with pytest.raises(ConfigError, match=why) as caught:
        resolve("shop", AppOptions(), {}, {})
    assert "stateflow.toml" in str(caught.value)


def test_a_named_file_must_exist(here: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml"):
        resolve("shop", AppOptions(), {}, {"STATEFLOW_CONFIG": "absent.toml"})
    assert resolve("shop", AppOptions(), {}, {}).options == AppOptions()


@pytest.mark.parametrize(
    ("variable", "value"), [("STATEFLOW_PARTITIONS", "x"), ("STATEFLOW_IDLE_SECONDS", "0")]
)
def test_a_bad_variable_is_refused_and_named(here: Path, variable: str, value: str) -> None:
    with pytest.raises(ConfigError, match=variable):
        resolve("shop", AppOptions(), {}, {variable: value})


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "-1", "1e400", "9" * 30, "1_0", "0x10", "", "true"])
@pytest.mark.parametrize("name", NUMBERS)
def test_no_number_is_without_bounds(here: Path, name: str, value: str) -> None:
    """An infinite interval ended in a traceback, in the middle of a start."""
    variable = f"STATEFLOW_{name.upper()}"
    with pytest.raises(ConfigError, match=variable) as caught:
        resolve("shop", AppOptions(), {}, {variable: value})
    assert re.match(r"Give a (number above 0, at most|whole number from \d[\d,]* to) \d", caught.value.action)
    assert caught.value.fields["setting"] == name


@pytest.mark.parametrize("value", ["inf", "nan", "-1", "1e300", "9" * 18, "true", "[1]", "2026-01-01"])
@pytest.mark.parametrize("name", NUMBERS)
def test_nor_is_one_in_the_file(here: Path, name: str, value: str) -> None:
    (here / "stateflow.toml").write_text(f"{name} = {value}\n")
    with pytest.raises(ConfigError, match=rf"{name}.*stateflow\.toml"):
        resolve("shop", AppOptions(), {}, {})


@pytest.mark.parametrize("name", ["brokers", "images", "member", "metrics_host", "state_dir"])
def test_an_empty_text_is_no_place_and_no_name(here: Path, name: str) -> None:
    """It was taken for the current directory."""
    with pytest.raises(ConfigError, match=name):
        resolve("shop", AppOptions(), {}, {f"STATEFLOW_{name.upper()}": ""})


def test_a_path_that_no_system_takes_is_refused(here: Path) -> None:
    (here / "stateflow.toml").write_text('state_dir = "a\\u0000b"\n')
    with pytest.raises(ConfigError, match="state_dir"):
        resolve("shop", AppOptions(), {}, {})


def test_variables_of_others_are_left_alone(here: Path) -> None:
    settings = resolve(
        "shop", AppOptions(), {}, {"STATEFLOW_TEST_BROKER": "embedded", "STATEFLOW_JAVA": "/x"}
    )
    assert settings.options == AppOptions()


@pytest.mark.parametrize("wrong", [{"partitions": -1}, {"read_cache_bytes": -1}, {"start_from": "middle"}])
def test_options_are_checked_when_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        AppOptions(**wrong)


def test_a_client_setting_of_the_wrong_shape_does_not_show_its_value() -> None:
    with pytest.raises(ConfigError) as caught:
        AppOptions(client=[SECRET])  # type: ignore[arg-type]
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "worker-7"])
def test_metrics_are_for_strangers_only_with_a_token(host: str) -> None:
    code = AppOptions(metrics_port=9464, metrics_host=host)
    with pytest.raises(ConfigError, match="anybody"):
        resolve("shop", code, environment={})
    settings = resolve("shop", code, environment={"STATEFLOW_METRICS_TOKEN": "s3cret"})
    assert settings.options.metrics_token == "s3cret"
    assert "s3cret" not in repr([setting.value for setting in settings.shown()])


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_metrics_of_this_machine_need_no_token(host: str) -> None:
    assert resolve("shop", AppOptions(metrics_port=9464, metrics_host=host), environment={})
