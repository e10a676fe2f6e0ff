"""Places that the control topic names are taken only where the settings of the process allow them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateflow.checkpoint.locations import AllowedLocations, written_down
from stateflow.config import AppOptions
from stateflow.errors import ConfigError


def test_a_directory_allows_what_is_below_it(tmp_path: Path) -> None:
    allowed = AllowedLocations([str(tmp_path / "kept")])
    assert allowed.resolve(str(tmp_path / "kept")) == str(tmp_path / "kept")
    assert allowed.resolve(f"{tmp_path}/kept/shop/x") == f"{tmp_path}/kept/shop/x"
    assert allowed.resolve(f"file://{tmp_path}/kept") == f"{tmp_path}/kept"


def test_no_way_leads_out_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/link").symlink_to(tmp_path / "other")
    allowed = AllowedLocations([str(tmp_path / "kept")])
    for place in ("other", "kept/../other", "kept/../kept", "kept-too", "kept/link", "kept/link/x"):
        with pytest.raises(ConfigError, match="settings here do not allow"):
            allowed.resolve(f"{tmp_path}/{place}")
    for place in ("kept", "", "/", "s3://kept", "kept@x"):
        with pytest.raises(ConfigError):
            allowed.resolve(place)


def test_a_place_that_is_named_twice_is_shown_once(tmp_path: Path) -> None:
    allowed = AllowedLocations([f"{tmp_path}/kept", f"file://{tmp_path}/kept"]).and_also(f"{tmp_path}/kept")
    with pytest.raises(ConfigError) as caught:
        allowed.resolve("/elsewhere")
    assert caught.value.action.count(f"{tmp_path}/kept") == 1


def test_asking_whether_a_place_is_allowed_raises_nothing(tmp_path: Path) -> None:
    allowed = AllowedLocations([f"{tmp_path}/kept"])
    assert allowed.allows(f"{tmp_path}/kept/shop")
    assert not allowed.allows(f"{tmp_path}/other")


S3 = "s3://me:hunter2@bucket/prefix?region=eu-1&secret_key=hunter2"


def test_a_store_is_reached_with_the_credentials_of_the_settings() -> None:
    allowed = AllowedLocations([S3])
    written = written_down(f"{S3}".replace("/prefix", "/prefix/shop"))
    assert written == "s3://bucket/prefix/shop?region=eu-1"
    assert allowed.resolve(written) == "s3://me:hunter2@bucket/prefix/shop?region=eu-1&secret_key=hunter2"


@pytest.mark.parametrize(
    "place",
    [
        "s3://other/prefix?region=eu-1",
        "gs://bucket/prefix?region=eu-1",
        "s3://bucket/prefixed?region=eu-1",
        "s3://bucket/prefix/../x?region=eu-1",
        "s3://bucket/prefix//x?region=eu-1",
        "s3://bucket?region=eu-1",
        "s3://bucket/prefix",
        "s3://bucket/prefix?region=eu-1&endpoint_override=http://elsewhere",
        "/bucket/prefix",
    ],
)
def test_another_place_is_refused_without_saying_credentials(place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AllowedLocations([S3]).resolve(place)
    assert "hunter2" not in str(caught.value)
    assert "bucket/prefix" in caught.value.action


def test_settings_name_the_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = AppOptions(savepoints="/one, s3://two/x", images="/three")
    assert options.places == ("/one", "s3://two/x", "/three")
    assert AppOptions(savepoints="").places == ()
    by_default = AllowedLocations(AppOptions().places)
    assert by_default.resolve(f"{tmp_path}/savepoints/shop") == f"{tmp_path}/savepoints/shop"
