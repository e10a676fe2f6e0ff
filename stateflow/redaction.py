"""Settings, locations and texts as they may be shown: without passwords, keys and tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass

HIDDEN = "********"
_SECRET_WORDS = (
    "password",
    "passphrase",
    "secret",
    "token",
    "credential",
    "access_key",
    "jaas",
    "private",
    ".key",
    "oauth",
)
_PLAIN_PARAMETERS = frozenset(
    {
        "allow_bucket_creation",
        "allow_bucket_deletion",
        "allow_delayed_open",
        "anonymous",
        "background_writes",
        "buffer_size",
        "connect_timeout",
        "endpoint_override",
        "force_virtual_addressing",
        "region",
        "replication",
        "request_timeout",
        "retry_limit_seconds",
        "scheme",
        "user",
    }
)
"""Parameters of object stores that are no secrets; what is not among them is hidden."""
_IN_TEXT = re.compile(r"[a-z][a-z0-9+.-]*://[^\s'\"<>]+", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """True when the name of a setting says that its value is not for others."""
    return any(word in name.lower() for word in _SECRET_WORDS)


def redacted(name: str, value: object) -> str:
    """The value of a setting, or stars where its name says that it is a secret, or where an address has one in it."""
    return HIDDEN if is_secret(name) else redacted_text(str(value))


def shown(location: str) -> str:
    """A location as it may be shown."""
    return str(Address.of(location).shown())


def redacted_text(text: str) -> str:
    """A text in which credentials in addresses (``scheme://user:password@…``, ``?secret_key=…``) are starred out."""
    return _IN_TEXT.sub(lambda found: shown(found[0]), text)


@dataclass(frozen=True, slots=True)
class Address:
    """``scheme://user@rest?parameters`` in its parts; a plain path has neither scheme, user nor parameters."""

    scheme: str
    user: str
    """User and password, or an access key and its secret; empty for none."""
    rest: str
    """Host or bucket, and the path."""
    parameters: tuple[str, ...] = ()

    @classmethod
    def of(cls, location: str) -> Address:
        """The parts of a location. A secret may have ``/`` in it, so all up to the last ``@`` is taken for one."""
        scheme, separator, rest = location.partition("://")
        if not separator:
            return cls("", "", location)
        first, _, query = rest.partition("?")
        if (
            "@" in query and ":" in first and "/" not in first
        ):  # a ? in a secret, not the one before parameters
            user, _, rest = rest.rpartition("@")
            rest, _, query = rest.partition("?")
            return cls(scheme, user, rest, tuple(query.split("&")) if query else ())
        rest = first
        user, at, place = rest.rpartition("@")
        if at and "/" in user and ":" not in user:  # an @ in a path, behind a bucket
            user, place = "", rest
        return cls(scheme, user, place, tuple(query.split("&")) if query else ())

    def __str__(self) -> str:
        """The location as it was given."""
        if not self.scheme:
            return self.rest
        user = f"{self.user}@" if self.user else ""
        query = "?" + "&".join(self.parameters) if self.parameters else ""
        return f"{self.scheme}://{user}{self.rest}{query}"

    @property
    def has_credentials(self) -> bool:
        """True when it holds what others should not see."""
        return self.shown() != self

    def public(self) -> Address:
        """The same place with everything left out that may be a secret."""
        plain = tuple(parameter for parameter in self.parameters if _shown(parameter) == parameter)
        return Address(self.scheme, "", self.rest, plain)

    def shown(self) -> Address:
        """The same place with stars for everything that may be a secret."""
        parameters = tuple(_shown(parameter) for parameter in self.parameters)
        return Address(self.scheme, HIDDEN if self.user else "", self.rest, parameters)


def _shown(parameter: str) -> str:
    name, equals, value = parameter.partition("=")
    if not equals or name.lower() not in _PLAIN_PARAMETERS:
        return f"{name}={HIDDEN}" if equals else HIDDEN
    return f"{name}={redacted_text(value)}" if "://" in value else parameter
