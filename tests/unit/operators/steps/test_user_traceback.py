"""A user's exception keeps its traceback, trimmed to the user's frames, wherever it is raised."""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn

import click
import pytest

import stateflow as sf
from stateflow.cli import main as frame
from stateflow.errors import DecodeError, EncodeError, ProcessingError, StateflowError
from stateflow.lab.applications.stage import StageBench
from stateflow.operators.steps.error_policy import Policy
from stateflow.spark.failure import Failure

SHOP = """
import json
from datetime import timedelta
import stateflow as sf

def price(value):
    return lookup(value)

def lookup(value):
    return {}[value]

def parsed(value):
    return json.loads("{" + str(value))

def renamed(value):
    try:
        return lookup(value)
    except KeyError as cause:
        raise ValueError("no such article") from cause

def deep(value):
    return deep(value)

class Till(sf.Operator[bytes, int, int]):
    total: sf.Value[str] = sf.state(default="")

    def on_record(self, value, ctx):
        if value == 0:
            price(value)
        if value == 1:
            self.total.set(5)
        ctx.timer("close", after=timedelta(seconds=1))

    def on_timer(self, name, ctx):
        lookup(name)
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("user") / "shop.py"
    path.write_text(SHOP)
    spec = importlib.util.spec_from_file_location("shop", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["shop"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["shop"]


def failure(build: Callable[[Any], Any], value: Any = 0, *, until_ms: int | None = None) -> StateflowError:
    """What ends a stage that reads one record."""
    app = sf.App("test")
    out = build(app.stream(app.topic("in", value=sf.Integer)))
    if out is not None:
        out.to(app.topic("out", value=sf.Json))
    stage = StageBench(app.topology().stages[0])
    with pytest.raises((ProcessingError, EncodeError)) as caught:  # noqa: PT012 - either step may raise
        stage.feed((b"k", sf.Integer.encode(value), 1000))
        stage.advance(until_ms or 2000)
    return caught.value


VERBS: dict[str, Callable[[Any, Any], Any]] = {
    "map": lambda stream, shop: stream.map(shop.price),
    "filter": lambda stream, shop: stream.filter(shop.price),
    "flat_map": lambda stream, shop: stream.flat_map(shop.price),
    "key_by": lambda stream, shop: stream.key_by(shop.price, name="by", key=str).map(str),
    "retried": lambda stream, shop: stream.map(shop.price, on_error=sf.Retry(2)),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_function_that_raises_is_shown_with_its_own_frames_only(shop: Any, verb: str) -> None:
    error = failure(lambda stream: VERBS[verb](stream, shop))
    assert str(error.fields["traceback"]).splitlines() == [
        f'  File "{shop.__file__}", line 7, in price',
        "    return lookup(value)",
        f'  File "{shop.__file__}", line 10, in lookup',
        "    return {}[value]",
        "KeyError: 0",
    ]
    assert error.fields["raised_at"] == f"{shop.__file__}:10"
    assert f"KeyError: 0 ({shop.__file__}:10, in lookup)." in error.message


def operator_failure(shop: Any, value: int) -> StateflowError:
    app = sf.App("test")
    stream = app.stream(app.topic("in", key=bytes, value=sf.Integer), co_partitioned=True)
    stream.process(shop.Till, name="till").to(app.topic("out", value=sf.Json))
    stage = StageBench(app.topology().stages[0])
    with pytest.raises((ProcessingError, EncodeError)) as caught:  # noqa: PT012 - a record or its timer raises
        stage.feed((b"k", sf.Integer.encode(value), 1000))
        stage.advance(60_000)
    return caught.value


def test_an_operator_that_raises_is_shown(shop: Any) -> None:
    error = operator_failure(shop, 0)
    assert [line for line in shown(error) if "File" in line] == [
        f'  File "{shop.__file__}", line 29, in on_record',
        f'  File "{shop.__file__}", line 7, in price',
        f'  File "{shop.__file__}", line 10, in lookup',
    ]


def test_a_timer_that_raises_is_shown_and_says_its_own_error(shop: Any) -> None:
    error = operator_failure(shop, 2)
    assert error.message.startswith("In step 'till': the timer 'close' of the key b'k': KeyError: 'close' (")
    assert error.fields["raised_at"] == f"{shop.__file__}:10"
    assert shown(error)[-1] == "KeyError: 'close'"


def test_a_state_that_refuses_a_value_is_shown_where_the_user_wrote_it(shop: Any) -> None:
    error = operator_failure(shop, 1)
    assert isinstance(error, EncodeError)
    assert error.fields["raised_at"] == f"{shop.__file__}:31"
    assert [line for line in shown(error) if "File" in line] == [
        f'  File "{shop.__file__}", line 31, in on_record'
    ]


def test_a_library_called_by_the_user_is_shown_but_the_place_is_the_users(shop: Any) -> None:
    error = failure(lambda stream: stream.map(shop.parsed))
    assert error.fields["raised_at"] == f"{shop.__file__}:13"
    assert any("decoder.py" in line for line in shown(error))


def test_a_chain_of_exceptions_is_shown_whole(shop: Any) -> None:
    text = str(failure(lambda stream: stream.map(shop.renamed)).fields["traceback"])
    assert text.index("KeyError: 0") < text.index("direct cause") < text.index("ValueError: no such article")
    assert "guard.py" not in text


def test_a_recursion_is_not_shown_a_thousand_times(shop: Any) -> None:
    error = failure(lambda stream: stream.map(shop.deep))
    assert len(shown(error)) < 20
    assert "RecursionError" in shown(error)[-1]


def test_what_no_user_raised_has_no_traceback() -> None:
    app = sf.App("test")
    app.stream(app.topic("in", value=sf.Integer)).to(app.topic("out", value=sf.Integer))
    with pytest.raises(DecodeError) as caught:
        StageBench(app.topology().stages[0]).feed((b"k", b"no integer", 0))
    assert "traceback" not in caught.value.fields
    builtin = failure(lambda stream: stream.map(len))
    assert "traceback" not in builtin.fields
    assert "TypeError: object of type 'int' has no len()." in builtin.message


@pytest.mark.parametrize("policy", [sf.Skip(), sf.DeadLetter("dead")])
def test_what_a_policy_lets_go_ends_nothing(shop: Any, policy: Policy) -> None:
    app = sf.App("test")
    app.stream(app.topic("in", value=sf.Integer)).map(shop.price, on_error=policy).to(app.topic("out"))
    stage = StageBench(app.topology().stages[0])
    stage.feed((b"k", sf.Integer.encode(0), 0))
    assert "out" not in stage.context.sent


def test_the_traceback_travels_between_processes_and_from_executors(shop: Any) -> None:
    error = failure(lambda stream: stream.map(shop.price))
    assert copy.copy(error).fields == error.fields
    travelled = copy.copy(Failure.of(error)).to_error()
    assert isinstance(travelled, ProcessingError)
    assert (travelled.message, travelled.fields) == (error.message, error.fields)


def command_that_raises(error: BaseException) -> click.Command:
    def callback() -> NoReturn:
        raise error

    flags: list[click.Parameter] = [
        click.Option([name], is_flag=True, expose_value=False) for name in ("--json", "-v")
    ]
    return click.Command("failing", params=flags, callback=callback)


def test_the_command_line_shows_it(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    error = failure(lambda stream: stream.map(shop.price))
    assert frame.run([], command_that_raises(error)) == 22
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("error: In step ")
    assert lines[1] == "Where the application raised it (-v shows every frame):"
    assert lines[2:] == shown(error)


def test_verbosely_the_command_line_shows_every_frame(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    error = failure(lambda stream: stream.map(shop.price))
    assert frame.run(["-v"], command_that_raises(error)) == 22
    text = capsys.readouterr().err
    assert "guard.py" in text
    assert "shop.py" in text
    assert text.splitlines()[-1].startswith("error: In step ")


def test_with_json_it_is_a_field(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    error = failure(lambda stream: stream.map(shop.price))
    frame.run(["--json"], command_that_raises(error))
    told = json.loads(capsys.readouterr().out)
    assert told["fields"]["traceback"] == error.fields["traceback"]
    assert told["fields"]["raised_at"] == f"{shop.__file__}:10"


def test_a_window_that_raises_is_shown(shop: Any) -> None:
    app = sf.App("test")
    keyed = app.stream(app.topic("in", value=sf.Integer)).key_by(lambda value: "k", name="by", key=str)
    keyed.window(sf.Tumbling(timedelta(seconds=1))).aggregate(
        sf.fold(0, lambda total, value: int(shop.lookup(value))), name="sums"
    )
    stage = StageBench(app.topology().stages[1])
    with pytest.raises(ProcessingError) as caught:
        stage.feed((b"k", sf.Integer.encode(0), 1000))
    assert caught.value.fields["raised_at"] == f"{shop.__file__}:10"
    assert "During handling" not in str(caught.value.fields["traceback"]), "of the batch tried again"


def shown(error: StateflowError) -> list[str]:
    return str(error.fields["traceback"]).splitlines()
