"""Options and targets that cannot be: on the command line, in the file, in the environment, in the code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.broker.command_site import Ended, Process, Site

pytestmark = pytest.mark.broker


def assert_config_error(ended: Ended, *words: str) -> None:
    """It ended with 2, as a JSON object that names the culprit and says what to do."""
    assert ended.code == 2
    text = f"{ended.error['message']} {ended.error['action']}"
    assert all(word in text for word in words), text
    assert ended.error["action"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workers", "0"], ["--workers", "0"]),
        (["--workers", "many"], ["--workers", "many"]),
        (["--until-drowned"], ["--until-drowned"]),
        (["--runner", "cloud"], ["--runner", "cloud"]),
        (["--runner", "spark", "--name", "w"], ["--name"]),
        (["--workers", "2", "--state-dir", __file__], ["state-dir"]),
        (["--state-dir", __file__], ["state-dir"]),
    ],
)
def test_a_bad_option_on_the_command_line(site: Site, arguments: list[str], words: list[str]) -> None:
    assert_config_error(site.type("run", site.digits, *arguments, "--json"), *words)


def test_the_same_for_a_person(site: Site) -> None:
    ended = site.type("run", site.digits, "--until-drowned")
    assert ended.code == 2
    assert not ended.out
    assert ended.err.startswith("error: ")
    assert "What to do: " in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("commit_interval_second = 1", ["commit_interval_second", "stateflow.toml"]),
        ('partitions = "many"', ["partitions", "stateflow.toml"]),
        ("partitions = ", ["stateflow.toml", "cannot be read"]),
        ("client = 7", ["client", "stateflow.toml"]),
        ("app = 7", ["app", "stateflow.toml"]),
        ('[client]\n"isolation.level" = "read_uncommitted"', ["isolation.level", "remove it"]),
        (
            '[client]\n"bootstrap.servers" = "a:1"',
            ["bootstrap.servers", "stateflow.toml", "STATEFLOW_BROKERS"],
        ),
        ('[client]\n"sasl.pasword" = "x"', ["sasl.pasword"]),
        ('[client]\n"socket.timeout.ms" = "soon"', ["socket.timeout.ms"]),
    ],
)
def test_a_bad_settings_file(site: Site, text: str, words: list[str]) -> None:
    (site.place / "stateflow.toml").write_text(text + "\n")
    assert_config_error(site.type("run", site.digits, "--json"), *words)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("STATEFLOW_COMMIT_INTERVAL_SECONDS", "soon", ["STATEFLOW_COMMIT_INTERVAL_SECONDS", "soon"]),
        ("STATEFLOW_GUARANTEE", "maybe", ["STATEFLOW_GUARANTEE", "maybe"]),
        (
            "STATEFLOW_COMIT_INTERVAL_SECONDS",
            "1",
            ["STATEFLOW_COMIT_INTERVAL_SECONDS", "commit_interval_seconds"],
        ),
        ("STATEFLOW_CONFIG", "absent.toml", ["absent.toml", "STATEFLOW_CONFIG"]),
        ("STATEFLOW_CLIENT__GROUP_ID", "mine", ["group.id", "remove it"]),
        ("STATEFLOW_CLIENT__NO_SUCH_THING", "1", ["no.such.thing"]),
    ],
)
def test_a_bad_environment(site: Site, name: str, value: str, words: list[str]) -> None:
    site.set(**{name: value})
    assert_config_error(site.type("run", site.digits, "--json"), *words)


BROKEN = {
    "syntax.py": "import stateflow as sf\napp = sf.App('a'",
    "raises.py": "raise RuntimeError('the database of the author is away')",
    "needs.py": "import no_such_package_anywhere",
    "graph.py": "import stateflow as sf\napp = sf.App('a')\napp.stream()",
    "name.py": "import stateflow as sf\napp = sf.App('not a name')",
    "number.py": "app = 7",
    "nothing.py": "",
    "exits.py": "raise SystemExit(0)",
}


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("digits", ["module:attribute"]),
        ("digits.py:", ["module:attribute"]),
        ("absent.py:app", ["absent.py", "does not exist"]),
        ("no.such.module:app", ["no.such.module"]),
        ("syntax.py:app", ["syntax.py:2"]),
        ("raises.py:app", ["raises.py:1", "the database of the author is away"]),
        ("needs.py:app", ["no_such_package_anywhere", "needs.py:1"]),
        ("graph.py:app", ["A stream reads no topic"]),
        ("name.py:app", ["not a name"]),
        ("number.py:app", ["names a int"]),
        ("nothing.py:app", ["names nothing"]),
        ("exits.py:app", ["exits.py", "SystemExit"]),
        ("raises:app", ["raises", "the database of the author is away"]),
    ],
)
def test_a_bad_target(site: Site, target: str, words: list[str]) -> None:
    for name, code in BROKEN.items():
        Path(name).write_text(code)
    for verb in (["run"], ["describe"], ["topics", "apply"]):
        assert_config_error(site.type(*verb, target, "--json"), *words)


def test_a_restore_that_names_no_application_or_two(site: Site) -> None:
    assert_config_error(site.type("restore", "--json"), "--app ID")
    assert_config_error(site.type("restore", site.digits, "--app", "digits", "--json"), "--app ID")


def test_an_unknown_application(site: Site) -> None:
    ended = site.type("restore", "--app", "nobody-has-this-id", "--json")
    assert (ended.code, ended.error["error"]) == (41, "CatalogMissing")
    assert "id" in ended.error["action"]


@pytest.mark.parametrize("options", [[], ["--workers", "2"]])
def test_too_few_files_are_not_taken_for_brokers_that_do_not_answer(site: Site, options: list[str]) -> None:
    command = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *site.command("run", site.digits, *options)]
    run = Process(command, site.place / "said.txt")
    try:
        assert run.ended() == 36
        assert "ulimit -Hn" in run.said
    finally:
        run.close()


def test_partitions_and_an_application_that_there_are_not(site: Site) -> None:
    site.topic("in", "out")
    site.feed(range(5))
    assert site.drained().code == 0
    known = ["--app", site.name]
    assert_config_error(
        site.type("state", "scan", "seen", "--partition", "9", *known, "--json"), "9", "0 to 0"
    )
    lacking = ["--partition", "0", "--partition", "7", *known, "--dry-run", "--json"]
    assert_config_error(site.type("restore", *lacking), "partition 7", "0 to 0")
    checks = json.loads(site.type("doctor", "--app", "no-such-app", "--json").out)["checks"]
    assert [check["ok"] for check in checks if check["name"] == "application"] == [False]
