"""Places that Spark's jobs are to write are looked at before Kafka is asked, and before Spark starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from stateflow.cli.main import run as command
from stateflow.errors import ConfigError
from stateflow.spark.job_places import require_own_folder, require_spark_folder
from stateflow.spark.jobs import bootstrap, change_feed, pipeline, recover, snapshot

_NOBODY = "127.0.0.1:1"
Main = Callable[[Sequence[str]], int]

_OF_STORE = ["--app", "shop", "--store", "totals"]
JOBS: list[tuple[str, Main, list[str]]] = [
    ("--out", snapshot.main, _OF_STORE),
    ("--out", change_feed.main, [*_OF_STORE, "--checkpoint-dir", "query"]),
    ("--checkpoint-dir", change_feed.main, [*_OF_STORE, "--out", "out"]),
    ("--images", recover.main, ["--app", "shop"]),
    ("--to", bootstrap.main, ["app.py:app", "--table", "totals=rows", "--sources", "latest"]),
    ("--progress-file", pipeline.main, ["app.py:app"]),
    ("--checkpoint-dir", pipeline.main, ["app.py:app"]),
]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with a file in it, where Spark and Hadoop have no settings of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STATEFLOW_BROKERS", _NOBODY)
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "file").write_text("mine")
    return tmp_path


@pytest.mark.parametrize(
    ("option", "main", "others"),
    JOBS,
    ids=[f"{main.__module__.rpartition('.')[2]} {option}" for option, main, _ in JOBS],
)
def test_a_place_below_a_file_is_refused_and_nothing_is_left(
    option: str, main: Main, others: list[str], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*others, option, "file/new"]) == ConfigError.exit_code
    assert f"error: {option}: file/new cannot be written (file is a file)." in capsys.readouterr().err
    assert [path.name for path in place.iterdir()] == ["file"]


def test_a_file_in_the_place_of_a_folder_is_not_written_over(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*_OF_STORE, "--out", "file"]
    assert snapshot.main([*arguments, "--overwrite"]) == ConfigError.exit_code
    assert "--out: file cannot be written" in capsys.readouterr().err
    assert snapshot.main(arguments) == ConfigError.exit_code
    assert "file exists already" in capsys.readouterr().err
    assert (place / "file").read_text() == "mine"


def test_a_folder_that_is_there_is_told_before_anything_is_read(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "out").mkdir()
    assert snapshot.main([*_OF_STORE, "--out", "out"]) == ConfigError.exit_code
    assert "out exists already" in capsys.readouterr().err
    require_spark_folder("out", "--out")
    require_spark_folder("a/b", "--out", is_new=True)
    assert sorted(path.name for path in place.iterdir()) == ["file", "out"], "looking leaves nothing behind"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(place: Path) -> None:
    place.chmod(0o500)
    with pytest.raises(ConfigError, match=r"--out: new cannot be written \(Permission denied\)"):
        require_spark_folder("new", "--out")


@pytest.mark.parametrize("location", ["s3a://bucket/file/new", "hdfs://host:1/file/new", "gs://b/file/new"])
def test_places_of_other_file_systems_pass(location: str) -> None:
    require_spark_folder(location, "--out", is_new=True)
    require_own_folder(location, "--images")


@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_an_address_of_this_machine_is_looked_at(scheme: str, place: Path) -> None:
    for require in (require_spark_folder, require_own_folder):
        with pytest.raises(ConfigError, match="is a file"):
            require(f"{scheme}{place}/file/new", "--out")


def test_plain_paths_are_left_to_a_spark_whose_settings_may_mean_others(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = {"spark.hadoop.fs.defaultFS": "hdfs://host:1"}
    require_spark_folder("file/new", "--out", conf=conf)
    with pytest.raises(ConfigError, match="is a file"):
        require_spark_folder(f"file://{place}/file/new", "--out", conf=conf)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(place))
    require_spark_folder("file/new", "--out")
    with pytest.raises(ConfigError, match="is a file"):
        require_own_folder("file/new", "--images")


def test_run_looks_at_its_checkpoint_folder(capsys: pytest.CaptureFixture[str]) -> None:
    Path("app.py").write_text("import stateflow as sf\napp = sf.App('shop')\n")
    arguments = ["run", "app.py:app", "--runner", "spark", "--checkpoint-dir"]
    assert command([*arguments, "file/new"]) == ConfigError.exit_code
    assert "--checkpoint-dir: file/new cannot be written" in capsys.readouterr().err
