"""What a session is made with, and the commands that need none."""

from __future__ import annotations

import ast
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from stateflow.cli.jobs import command
from stateflow.errors import ConfigError, JobFailed, OffsetOutOfRange
from stateflow.spark.failure import Failure, last_line
from stateflow.spark.programs import VECTOR_MODULE, spark_home, spark_java_home, spark_python
from stateflow.spark.session import SparkSettings, spark_conf
from stateflow.spark.submit import JOBS, Submission, template, templates, write_copy


def test_speculation_cannot_be_turned_on() -> None:
    conf = spark_conf(SparkSettings(conf={"spark.speculation": "true", "spark.driver.memory": "3g"}))
    assert conf["spark.speculation"] == "false"
    assert conf["spark.driver.memory"] == "3g"
    assert conf["spark.sql.session.timeZone"] == "UTC"


def test_a_session_of_python_compiles_quickly_unless_told_otherwise() -> None:
    name = "spark.driver.extraJavaOptions"
    assert name not in spark_conf(SparkSettings())
    assert spark_conf(SparkSettings(is_python=True))[name] == "-XX:TieredStopAtLevel=1"
    assert spark_conf(SparkSettings(is_python=True, conf={name: "-Dmine=1"}))[name] == "-Dmine=1"


def test_a_trimmed_java_is_wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEFLOW_JAVA", "wheel")
    monkeypatch.setenv("STATEFLOW_CACHE", str(tmp_path))
    home = spark_java_home()
    assert home == tmp_path / "spark-java"
    assert spark_java_home() == home
    java = [str(home / "bin" / "java"), f"--add-modules={VECTOR_MODULE}", "-Dspace=a b", "-version"]
    ran = subprocess.run(java, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "version" in ran.stderr


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("SOURCES:py4j.zip:mine", "py4j.zip:mine"),
        ("code.zip:SOURCES:py4j.zip", "code.zip:py4j.zip"),
        ("code.zip:SOURCES", "code.zip"),
        ("SOURCES", ""),
        ("code.zip:SOURCES.d", "code.zip:SOURCES.d"),
        ("", ""),
        (None, None),
    ],
)
def test_python_is_started_without_the_archive_of_what_is_installed(
    given: str | None, left: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATEFLOW_CACHE", str(tmp_path / "a b"))
    sources = str(spark_home() / "python" / "lib" / "pyspark.zip")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if given is not None:
        monkeypatch.setenv("PYTHONPATH", given.replace("SOURCES", sources))
    show = "import os, sys; print([os.environ.get('PYTHONPATH'), sys.executable, sys.argv[1:]])"
    ran = subprocess.run([spark_python(), "-c", show, "a b"], capture_output=True, text=True, check=True)
    expected = None if left is None else left.replace("SOURCES", sources)
    assert ast.literal_eval(ran.stdout) == [expected, sys.executable, ["a b"]]


def test_another_sparks_python_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert spark_python() == sys.executable
    assert spark_home() == tmp_path


def test_a_cache_that_cannot_be_written_only_costs_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("STATEFLOW_CACHE", str(tmp_path / "file"))
    assert spark_python() == sys.executable


def test_every_template_says_what_it_does_and_how_to_run_it() -> None:
    assert [job.name for job in templates()] == list(JOBS)
    for job in templates():
        assert job.summary.endswith(".")
        assert f"spark-submit {job.path.name}" in job.source
        assert '__name__ == "__main__"' in job.source


def test_a_template_is_copied_but_never_over_a_file(tmp_path: Path) -> None:
    target = tmp_path / "mine.py"
    write_copy("snapshot", target)
    assert target.read_text() == template("snapshot").source
    with pytest.raises(ConfigError, match="exists already"):
        write_copy("repartition", target)
    with pytest.raises(ConfigError, match="no job"):
        template("nonsense")


def test_the_submit_command_passes_options_on(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        command,
        [
            "submit",
            "--master",
            "local[3]",
            "--conf",
            "spark.x=1",
            "--dry-run",
            "snapshot",
            "--app",
            "a",
            "--json",
        ],
    )
    assert result.exit_code == 0, result.output
    words = shlex.split(result.output)
    assert words[0].endswith("spark-submit")
    assert words[1:5] == ["--master", "local[3]", "--conf", "spark.x=1"]
    assert words[-3:] == ["--app", "a", "--json"]
    submission = Submission(program=tmp_path / "x.py", arguments=["a"], conf={})
    assert submission.environment()["PYSPARK_PYTHON"]


def test_a_cluster_keeps_the_python_that_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    for master, expected, of_driver in (
        ("spark://there:7077", "./environment/bin/python", sys.executable),
        ("local[2]", spark_python(), spark_python()),
    ):
        environment = Submission(
            program=tmp_path / "x.py", arguments=[], conf={}, master=master
        ).environment()
        assert environment["PYSPARK_PYTHON"] == expected
        assert environment["PYSPARK_DRIVER_PYTHON"] == of_driver


def test_an_error_comes_back_from_an_executor_as_itself() -> None:
    error = Failure("OffsetOutOfRange", "gone.", "do this.").to_error()
    assert isinstance(error, OffsetOutOfRange)
    assert (error.message, error.action) == ("gone.", "do this.")
    trace = 'Py4J\n  File "x.py", line 3\nValueError: it is broken\n\tat org.apache.Error(X)\n'
    assert last_line(trace) == "ValueError: it is broken"
    assert JobFailed("x", action="y").exit_code == 52
