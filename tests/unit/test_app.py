"""The application object: settings, loading, running, the public names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stateflow as sf
from stateflow.app import load
from stateflow.errors import ConfigError, GraphError

SOURCE = """
import neighbour
import stateflow as sf
app = sf.App("loaded")
app.stream(app.topic("in")).to(app.topic(neighbour.OUT))
number = 5
if __name__ == "__main__":
    app.main()
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "neighbour.py").write_text("OUT = 'out'\n")
    path = tmp_path / "flow.py"
    path.write_text(SOURCE)
    return path


@pytest.mark.parametrize("form", ["{path}:app", "flow.py:app", "flow:app"])
def test_load_by_file_and_by_module(script: Path, form: str) -> None:
    app = load(form.format(path=script))
    assert app.id == "loaded"
    assert app.topology().stages[0].outputs == ("out",)


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("flow.py", "not of the form"),
        ("flow.py:", "not of the form"),
        ("absent.py:app", "does not exist"),
        ("absent:app", "cannot be found"),
        ("flow.py:number", "names a int"),
        ("flow.py:absent", "names nothing"),
    ],
)
def test_what_names_no_application_is_refused(script: Path, target: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load(target)


def test_an_import_that_fails_inside_the_application_names_the_place(script: Path) -> None:
    script.write_text("import absent_dependency\n")
    with pytest.raises(ConfigError, match=r"absent_dependency.*flow\.py:1\)"):
        load("flow:app")


def test_what_a_module_raises_is_shown_by_its_own_frames(script: Path) -> None:
    (script.parent / "neighbour.py").write_text("def out():\n    return [][1]\n\nOUT = out()\n")
    with pytest.raises(ConfigError, match=r"IndexError: .*neighbour\.py:2\)") as caught:
        load("flow.py:app")
    shown = [
        line.split(", ")[1:] for line in str(caught.value.fields["traceback"]).splitlines() if "File" in line
    ]
    assert shown == [["line 2", "in <module>"], ["line 4", "in <module>"], ["line 2", "in out"]]


def test_main_names_the_application_to_the_command_line(script: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(script), *arguments], capture_output=True, text=True, check=False
        )

    shown = run()
    assert shown.returncode == 0
    assert "Commands" in shown.stdout
    unknown = run("fly")
    assert unknown.returncode == 2
    assert "fly" in unknown.stderr


def test_import_is_light() -> None:
    heavy = ["pyspark", "click", "confluent_kafka", "rocksdict", "fastavro", "numpy", "pandas", "pyarrow"]
    heavy += ["tomllib", "difflib", "sysconfig", "_hashlib", "email", "importlib.metadata", "asyncio", "ssl"]
    code = f"import sys, stateflow; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    for name in sf.__all__:
        assert getattr(sf, name) is not None
    assert sf.Avro("long").encode(1) == b"\x02"
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        getattr(sf, "absent")  # noqa: B009 - asks the module


def test_topics_are_declared_once() -> None:
    app = sf.App("test")
    one = app.topic("in", key=str, value=sf.Json)
    assert app.topic("in", key=str, value=sf.Json) == one
    assert app.topics == (one,)
    assert (one.key, one.value) == (sf.String, sf.Json)
    assert app.topic("raw").value is sf.Bytes


def test_settings_in_code_and_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = sf.App("test", partitions=8, options=sf.AppOptions(commit_interval_seconds=0.5))
    assert (app.options.partitions, app.options.commit_interval_seconds) == (8, 0.5)
    assert (app.options.brokers, app.options.guarantee) == ("localhost:9092", "exactly-once")
    app.configure(brokers="other:1", state_dir=None)
    assert (app.options.brokers, app.options.state_dir) == ("other:1", Path("state"))
    assert app.settings.origins["brokers"] == "command line"
    assert app.settings.origins["partitions"] == "code"


@pytest.mark.parametrize("wrong", [{"partitions": 0}, {"guarantee": "maybe"}])
def test_settings_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        sf.App("test", **wrong)


def test_a_setting_that_there_is_not_is_refused_where_it_is_made() -> None:
    app = sf.App("x")
    with pytest.raises(ConfigError, match=r"'commit_intervall.*' \(App\.configure\)") as refused:
        app.configure(commit_intervall_seconds=5)
    assert "commit_interval_seconds may be meant" in refused.value.action
    app.configure(partitions=None, brokers="localhost:9092")


def test_a_name_that_kafka_would_take_is_refused_with_the_reason() -> None:
    with pytest.raises(GraphError, match=r"Kafka allows topics 249: the names of tasks"):
        sf.App("x").topic("t" * 121)
