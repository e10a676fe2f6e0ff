"""The object store that a location names."""

from __future__ import annotations

from pathlib import Path

from stateflow.checkpoint.objects import DirectoryObjects, ObjectStore
from stateflow.errors import ConfigError


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
        f"images cannot be kept at {location!r}: the scheme {scheme!r} is not known.",
        action="use a directory, s3://bucket/prefix, gs://bucket/prefix or hdfs://host:port/path.",
        location=location,
    )
