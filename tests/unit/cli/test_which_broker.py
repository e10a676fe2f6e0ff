"""Which broker a command goes to, and that `config show` says the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from stateflow.cli import main as frame
from stateflow.cli.application import configured
from stateflow.cli.target import chosen
from stateflow.cli.which_broker import default_brokers
from stateflow.connectors.broker.processes import command_line
from stateflow.connectors.broker.running import (
    RunningBroker,
    all_running,
    load_running,
    meant_name,
    save_running,
)
from stateflow.connectors.broker.service import BrokerPlan
from stateflow.errors import ConfigError
from tests.waiting import wait_until

SCRIPT = """
import stateflow as sf
app = sf.App("shop"{arguments})
app.stream(app.topic("in")).to(app.topic("out"))
"""
Start = Callable[..., str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("STATEFLOW_BROKERS", "STATEFLOW_CONFIG", "STATEFLOW_UP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STATEFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(sys, "path", list(sys.path))
    write_app(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Records a broker that runs: a process with the data's folder on its command line stands for it."""
    with ExitStack() as stack:

        def started(name: str = "default") -> str:
            data = str(tmp_path / "data" / name)
            command = [sys.executable, "-c", "input()", data]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
            stack.enter_context(process)
            assert process.stdin is not None
            stack.callback(process.stdin.close)
            wait_until(lambda: data in (command_line(process.pid) or ""), "its command line is there")
            bootstrap = f"127.0.0.1:{10_000 + len(all_running())}"
            save_running(
                RunningBroker(
                    name=name,
                    bootstrap=bootstrap,
                    version="4.3.1",
                    pids=(process.pid,),
                    owner_pid=None,
                    data_dir=data,
                    ephemeral=False,
                )
            )
            return bootstrap

        yield started


def write_app(folder: Path, arguments: str = "") -> None:
    (folder / "shop.py").write_text(SCRIPT.format(arguments=arguments))


def shown(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """What `config show` says of the broker: the address, and where it is from."""
    assert frame.run(["config", "show", "shop.py:app", "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    (row,) = [row for row in rows if row["name"] == "brokers"]
    return row["value"], row["origin"]


def used() -> set[str]:
    """What commands use: with code, and by the id alone."""
    return {configured("shop.py:app").options.brokers, chosen("shop.py:app", None, None).options.brokers}


def test_without_anything_it_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys) == ("localhost:9092", "default")
    assert used() == {"localhost:9092"}
    assert default_brokers() == "localhost:9092"


def test_the_broker_of_up_is_shown_and_used(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    bootstrap = start()
    assert shown(capsys) == (bootstrap, "`stateflow up` (default)")
    assert used() == {bootstrap, chosen(None, "shop", None).options.brokers, default_brokers()}


@pytest.mark.parametrize("above", ["code", "file", "environment"])
def test_what_somebody_has_set_goes_before_it(
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    above: str,
) -> None:
    start()
    write_app(tmp_path, ', brokers="code:1"')
    expected = {"code": ("code:1", "code")}
    if above != "code":
        (tmp_path / "stateflow.toml").write_text('brokers = "file:1"\n')
        expected["file"] = ("file:1", "file stateflow.toml")
    if above == "environment":
        monkeypatch.setenv("STATEFLOW_BROKERS", "environment:1")
        expected["environment"] = ("environment:1", "environment STATEFLOW_BROKERS")
    assert shown(capsys) == expected[above]
    assert used() == {expected[above][0]}
    if above != "code":
        assert {chosen(None, "shop", None).options.brokers, default_brokers()} == {expected[above][0]}
    assert configured("shop.py:app", brokers="option:1").options.brokers == "option:1"
    assert chosen(None, "shop", "option:1").options.brokers == "option:1"


def test_settings_made_later_keep_the_running_broker(start: Start) -> None:
    bootstrap = start()
    app = configured("shop.py:app")
    app.configure(partitions=7)
    assert (app.options.brokers, app.options.partitions) == (bootstrap, 7)


def test_the_only_one_is_used_whatever_its_name(start: Start) -> None:
    bootstrap = start("blue")
    assert default_brokers() == bootstrap
    assert load_running() is None


def test_of_several_the_default_one_is_used_unless_the_environment_names_another(
    start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blue, default = start("blue"), start()
    assert [broker.name for broker in all_running()] == ["default", "blue"]
    assert default_brokers() == default
    monkeypatch.setenv("STATEFLOW_UP", "blue")
    assert shown(capsys) == (blue, "`stateflow up` (blue)")


def test_of_several_without_a_default_none_is_guessed(start: Start) -> None:
    start("blue")
    start("green")
    with pytest.raises(ConfigError, match=r"blue at .*, green at ") as caught:
        default_brokers()
    assert "STATEFLOW_UP=NAME" in caught.value.action
    assert chosen(None, "shop", "option:1").options.brokers == "option:1"


def test_one_that_is_named_and_does_not_run_is_refused(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    start()
    monkeypatch.setenv("STATEFLOW_UP", "blue")
    with pytest.raises(ConfigError, match="'blue', which does not run"):
        default_brokers()
    assert frame.run(["doctor", "--json"]) in (0, 50)


@pytest.mark.parametrize("name", ["Blue", "a/b", "..", "x" * 41])
def test_a_name_is_a_plain_word(name: str) -> None:
    with pytest.raises(ConfigError, match="no name of a broker"):
        meant_name(name)


def test_each_has_data_and_a_record_of_its_own(home: Path) -> None:
    assert BrokerPlan().kept_dir == home / "kafka"
    assert BrokerPlan(brokers=3).kept_dir == home / "kafka-3"
    assert BrokerPlan(name="blue").kept_dir == home / "brokers" / "blue" / "kafka"


def test_a_named_one_takes_a_free_port(capsys: pytest.CaptureFixture[str]) -> None:
    planned = {}
    for name in ("default", "blue"):
        assert frame.run(["up", "--name", name, "--dry-run", "--json"]) == 0
        planned[name] = json.loads(capsys.readouterr().out)
    assert (planned["default"]["port"], planned["blue"]["port"]) == (9092, 0)
    assert planned["blue"]["name"] == "blue"


def test_status_shows_the_others_and_down_names_them(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    blue = start("blue")
    assert frame.run(["status", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["running"], [(it["name"], it["bootstrap"]) for it in told["others"]]) == (
        False,
        [("blue", blue)],
    )
    assert frame.run(["down"]) == 0
    assert "no broker default runs; --name blue" in capsys.readouterr().out
    assert frame.run(["down", "--name", "blue", "--dry-run"]) == 0
    assert blue in capsys.readouterr().out


def test_a_record_without_a_name_is_the_default_ones(home: Path) -> None:
    home.mkdir()
    body = {"bootstrap": "127.0.0.1:1", "version": "4.3.1", "pids": [1], "owner_pid": None}
    (home / "broker.json").write_text(json.dumps({**body, "data_dir": "/data", "ephemeral": False}))
    found = load_running()
    assert found is not None
    assert found.name == "default"
