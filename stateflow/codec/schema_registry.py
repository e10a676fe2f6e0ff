"""Schemas by their number in a schema registry, as producers of the Confluent wire format use it."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any, Protocol

from stateflow.errors import ConfigError, SchemaUnavailable
from stateflow.redaction import redacted_text, shown

_TIMEOUT_SECONDS = 10.0
_ANSWER_BYTES_MAX = 4 << 20
_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class Schemas(Protocol):
    """Where schemas are looked up and registered."""

    def schema(self, number: int) -> Any:
        """The schema of that number; raises ``SchemaUnavailable``."""
        ...

    def register(self, subject: str, schema: Any) -> int:
        """The number of a schema under a subject, a new one if need be; raises ``SchemaUnavailable``."""
        ...


class FixedSchemas:
    """Schemas known beforehand: number → schema. Registers nothing new."""

    def __init__(self, schemas: Mapping[int, Any]) -> None:
        self._schemas = dict(schemas)

    def schema(self, number: int) -> Any:
        """The schema of that number."""
        if number not in self._schemas:
            raise _unavailable(f"schema {number} is not among those given", "give its schema as well.")
        return self._schemas[number]

    def register(self, subject: str, schema: Any) -> int:
        """The number that the schema was given with."""
        found = [number for number, known in self._schemas.items() if known == schema]
        if not found:
            raise _unavailable(f"the schema to write for {subject} has no number", "give it one.")
        return found[0]


class SchemaRegistry:
    """A schema registry over HTTP. Remembers what it was told: a number never changes its meaning.

    ``authorization`` is the value of that header, for example from the environment; it is never shown.
    """

    def __init__(self, url: str, *, authorization: str | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(
                f"{redacted_text(url)!r} is not the address of a registry.",
                action="write http://… or https://….",
            )
        self._url = url.rstrip("/")
        self._authorization = authorization
        self._schemas: dict[int, Any] = {}
        self._numbers: dict[tuple[str, str], int] = {}

    def schema(self, number: int) -> Any:
        """The schema of that number, asked for once."""
        if number not in self._schemas:
            answer = self._ask(f"/schemas/ids/{number}", None)
            if answer.get("schemaType", "AVRO") != "AVRO" or answer.get("references"):
                raise _unavailable(
                    f"schema {number} of {self} is not Avro, or refers to others",
                    "write the topic with Avro schemas that are whole.",
                )
            self._schemas[number] = json.loads(answer["schema"])
        return self._schemas[number]

    def register(self, subject: str, schema: Any) -> int:
        """The number of a schema under a subject."""
        text = json.dumps(schema)
        if (subject, text) not in self._numbers:
            path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions"
            self._numbers[subject, text] = int(self._ask(path, {"schema": text})["id"])
        return self._numbers[subject, text]

    def _ask(self, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        headers = {"Accept": _MEDIA_TYPE, "Content-Type": _MEDIA_TYPE}
        if self._authorization is not None:
            headers["Authorization"] = self._authorization
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, headers)  # noqa: S310 - the scheme was checked
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
                found: dict[str, Any] = json.loads(answer.read(_ANSWER_BYTES_MAX))
                return found
        except (urllib.error.URLError, OSError, ValueError) as cause:
            raise _unavailable(
                f"{path} of {self} could not be asked ({cause})",
                "check the registry's address, that it is up, and the authorization.",
            ) from cause

    def __repr__(self) -> str:
        return f"SchemaRegistry({shown(self._url)!r})"


def _unavailable(what: str, action: str) -> SchemaUnavailable:
    return SchemaUnavailable(f"{what}.", action=action)
