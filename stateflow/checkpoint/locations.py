"""The object store that a location names, and which locations this process may be sent to."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stateflow.checkpoint.objects import DirectoryObjects, ObjectStore
from stateflow.errors import ConfigError
from stateflow.redaction import Address, shown

_LOCAL = ("", "file")


def open_objects(location: str) -> ObjectStore:
    """The store at a path, ``file://``, ``s3://bucket/prefix?…`` or ``hdfs://…`` location.

    Raises ``ConfigError`` for a scheme that is not known, ``SetupError`` when its library is missing.
    """
    scheme, separator, rest = location.partition("://")
    if not separator:
        return DirectoryObjects(Path(location))
    if scheme == "file":
        return DirectoryObjects(Path(rest))
    if scheme in ("s3", "hdfs", "gs"):
        from stateflow.checkpoint.remote import ArrowObjects

        return ArrowObjects(location)
    raise ConfigError(
        f"images cannot be kept at {shown(location)!r}: the scheme {scheme!r} is not known.",
        action="use a directory, s3://bucket/prefix, gs://bucket/prefix or hdfs://host:port/path.",
        location=shown(location),
    )


def written_down(location: str) -> str:
    """A location as the catalog has it: absolute, and without credentials, which each process has in its settings."""
    address = Address.of(location)
    if address.scheme in _LOCAL:
        return str(Path(address.rest).absolute())
    return str(address.public())


class AllowedLocations:
    """The places that the settings of this process name, each with all that is below it.

    What the control topic says may choose among them and no more: whoever may write there could otherwise have state
    copied to any place, or read from one.
    """

    def __init__(self, locations: Iterable[str]) -> None:
        self._roots = tuple(dict.fromkeys(map(_absolute, locations)))

    def and_also(self, location: str) -> AllowedLocations:
        """These, and one more."""
        return AllowedLocations([*map(str, self._roots), location])

    def allows(self, location: str) -> bool:
        """Whether this is one of them."""
        return any(_below(root, Address.of(location)) is not None for root in self._roots)

    def resolve(self, location: str) -> str:
        """The place that a location of the catalog stands for, by the settings: with their credentials.

        Raises ``ConfigError`` for any other place.
        """
        wanted = Address.of(location)
        for root in self._roots:
            found = _below(root, wanted)
            if found is not None:
                return found
        allowed = ", ".join(str(root.shown()) for root in self._roots) or "none"
        raise ConfigError(
            f"the control topic names the location {shown(location)!r}, which the settings here do not allow.",
            action=f"if state is to be kept there, add it to the setting 'savepoints' (allowed are: {allowed});"
            " to use the savepoints there without that, name the place with --from. If nobody asked for it, see who may"
            " write to the control topic.",
            location=shown(location),
        )


def _absolute(location: str) -> Address:
    address = Address.of(location)
    return Address("", "", str(Path(address.rest).resolve())) if address.scheme in _LOCAL else address


def _below(root: Address, wanted: Address) -> str | None:
    """``wanted`` as it is reached by way of ``root``; None when it is not there or below."""
    if root.scheme == "":
        path = Path(wanted.rest)
        is_plain = wanted.scheme in _LOCAL and path.is_absolute() and ".." not in path.parts
        # Links are followed on both sides: one that leads out leads to what is not allowed.
        return str(path) if is_plain and path.resolve().is_relative_to(root.rest) else None
    same = (root.scheme, root.public().parameters) == (wanted.scheme, wanted.public().parameters)
    above, parts = root.rest.rstrip("/").split("/"), wanted.rest.rstrip("/").split("/")
    rest = parts[len(above) :]
    if not same or parts[: len(above)] != above or {"", ".", ".."}.intersection(rest):
        return None
    return str(Address(root.scheme, root.user, "/".join(parts), root.parameters))


NO_LOCATIONS = AllowedLocations(())
"""Allows nothing."""
