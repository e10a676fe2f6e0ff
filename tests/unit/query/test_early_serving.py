"""Questions over HTTP to a restore under way: who may ask, what is answered, what is refused."""

from __future__ import annotations

import http.client
import json
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from stateflow.errors import ConfigError, Interrupted
from stateflow.query.early_asking import ask_restore
from stateflow.query.early_serving import FILE, serving
from stateflow.scale.early.restore import EarlyRestore, Watchers
from tests.unit.scale.early_site import KEYS, EarlySite, run_with

pytestmark = pytest.mark.slow


@contextmanager
def served(folder: Path) -> Iterator[tuple[EarlySite, EarlyRestore, dict[str, Any]]]:
    """A restore that was not begun, its server, and what the file says of it."""
    site = EarlySite(21)
    site.commits(20)
    restore = site.early(folder)
    with serving(restore, folder, "shop"):
        yield site, restore, json.loads((folder / "shop" / FILE).read_text())


def get(place: dict[str, Any], path: str, token: str | None = None) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection(urlsplit(place["url"]).netloc, timeout=20)
    connection.request(
        "GET", path, headers={"Authorization": f"Bearer {place['token'] if token is None else token}"}
    )
    response = connection.getresponse()
    found = json.loads(response.read())
    connection.close()
    return response.status, found


def test_only_who_can_read_the_file_may_ask(tmp_path: Path) -> None:
    with served(tmp_path) as (_, _, place):
        file = tmp_path / "shop" / FILE
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert urlsplit(place["url"]).hostname == "127.0.0.1"
        for token in ("", "wrong", place["token"][:-1]):
            assert get(place, "/v1/stores/totals/keys/key-1", token)[0] == 401
    assert not file.exists()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 404),
        ("/v1/stores/totals", 404),
        ("/v2/stores/totals/keys/a", 404),
        ("/v1/stores/others/keys/a", 400),
        ("/v1/stores/totals/keys/a?wait_seconds=soon", 400),
        ("/v1/stores/totals/keys/key-1", 202),
    ],
)
def test_what_is_asked_is_checked(path: str, status: int, tmp_path: Path) -> None:
    with served(tmp_path) as (_, _, place):
        assert get(place, path)[0] == status


def test_a_question_that_waits_is_answered_while_the_restore_runs(tmp_path: Path) -> None:
    with served(tmp_path) as (_, restore, _):
        bounds, answers = list[dict[str, Any]](), list[dict[str, Any] | None]()
        asking = threading.Thread(
            target=lambda: answers.append(ask_restore(tmp_path, "shop", "totals", "a/b ü", bounds.append))
        )
        asking.start()
        ask = restore.ask("totals", KEYS[2])
        restore.run()
        asking.join(20)
        assert ask.answer is not None
        assert answers[0] is None or (answers[0]["rows"], answers[0]["source"]) == ([], "nothing")
        assert ask_restore(tmp_path, "shop", "totals", KEYS[2], bounds.append) is None, "it is whole"
    assert ask_restore(tmp_path, "shop", "totals", KEYS[2], bounds.append) is None, "there is none"


def test_an_answer_tells_where_it_is_from(tmp_path: Path) -> None:
    with served(tmp_path) as (_, restore, place):
        found: list[tuple[int, dict[str, Any]]] = []
        restore.ask("totals", KEYS[4])
        run_with(restore, lambda: found.append(get(place, f"/v1/stores/totals/keys/{KEYS[4]}")))
        status, answer = next(pair for pair in found if pair[0] != 202)
        assert status in (200, 410)
        waiting = [told for status, told in found if status == 202]
        assert all(set(told["bound"] or {}) <= {"slots", "image_bytes", "seconds"} for told in waiting)
        if status == 200:
            assert {"rows", "source", "task", "offset_first", "offset_next", "seconds"} <= set(answer)


def test_who_waits_is_told_when_the_restore_is_stopped(tmp_path: Path) -> None:
    with served(tmp_path) as (_, restore, _):
        with pytest.raises(Interrupted):
            restore.run(Watchers(cancelled=lambda: True))
        with pytest.raises(Interrupted, match="before the key was found"):
            ask_restore(tmp_path, "shop", "totals", KEYS[0], lambda _: None)
        with pytest.raises(ConfigError, match="no store"):
            ask_restore(tmp_path, "shop", "others", KEYS[0], lambda _: None)


def test_a_file_that_a_killed_restore_left_misleads_nobody(tmp_path: Path) -> None:
    file = tmp_path / "shop" / FILE
    file.parent.mkdir()
    for left in ('{"url": "http://127.0.0.1:1", "token": "t", "pid": 1}', "{", '{"url": 5}', "[]"):
        file.write_text(left)
        assert ask_restore(tmp_path, "shop", "totals", "a", lambda _: None) is None
