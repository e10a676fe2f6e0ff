"""Asking a restore that is under way on this machine for a key: the other side of ``early_serving``."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from stateflow.errors import BrokerUnreachable, ConfigError, Interrupted

_FILE = "serving.json"
_WAIT_SECONDS = 20.0
_TIMEOUT_SECONDS = 60.0


def ask_restore(
    state_dir: Path, app: str, store: str, key: str, on_bound: Callable[[dict[str, Any]], None]
) -> dict[str, Any] | None:
    """The answer of a restore under way in a state directory, however long it takes; None when there is none any more.

    ``on_bound`` is told by when the answer is there at the latest, when it is not there at once. Raises ``ConfigError``
    for what cannot be asked, ``Interrupted`` when the restore ends without an answer.
    """
    try:
        place = json.loads((state_dir / app / _FILE).read_text())
        port, token = urlsplit(str(place["url"])).port, str(place["token"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    if port is None:
        return None
    path = f"/v1/stores/{quote(store, safe='')}/keys/{quote(key, safe='')}"
    wait_seconds = 0.2  # what is known is there by then
    while True:
        try:
            status, found = _get(port, token, f"{path}?wait_seconds={wait_seconds}")
        except ConnectionRefusedError:
            return None  # it was killed, and its file is still there
        except (OSError, http.client.HTTPException, ValueError, TypeError) as error:
            raise Interrupted(
                f"the restore that serves {app} on this machine broke off ({error}).",
                action="ask again: once it has ended, what the local stores hold is shown.",
            ) from error
        match status:
            case HTTPStatus.OK:
                return found
            case HTTPStatus.ACCEPTED:
                if found.get("bound") is not None:
                    on_bound(found["bound"])
                wait_seconds = _WAIT_SECONDS
            case HTTPStatus.UNAUTHORIZED:
                return None  # another program has the port of a restore that was killed
            case HTTPStatus.GONE if found.get("is_whole"):
                return None  # it ended a moment ago
            case _:
                raise _refused(status, str(found.get("message")))


def _get(port: int, token: str, path: str) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        return response.status, dict(json.loads(response.read()))
    finally:
        connection.close()


def _refused(status: int, message: str) -> Exception:
    if status == HTTPStatus.BAD_REQUEST:
        return ConfigError(f"the restore under way cannot be asked this: {message}", action="correct it.")
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return BrokerUnreachable(f"the restore under way is busy: {message}.", action="ask again later.")
    return Interrupted(
        f"{message[:1].upper()}{message[1:]}.",
        action="start it again: it goes on from where it was.",
    )
