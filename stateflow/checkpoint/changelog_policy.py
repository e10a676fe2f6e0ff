"""What the catalog says about changelogs that the logs themselves do not: the terms by which a restore is planned."""

from __future__ import annotations

from dataclasses import dataclass

from stateflow.catalog.model import Catalog, TrimEntry
from stateflow.errors import ConfigError
from stateflow.redaction import Address, shown

_HARMLESS_PARAMETERS = frozenset(
    {"anonymous", "buffer_size", "connect_timeout", "region", "request_timeout", "retry_limit_seconds"}
)
"""Of a location: all others may lead its requests, signed with the credentials of whoever reads, elsewhere."""


@dataclass(frozen=True, slots=True)
class ChangelogPolicy:
    """How to read a changelog that does not begin at 0, or that keeps deletions longer than it did.

    The beginning of a log moves only when records are deleted, by ``DeleteRecords`` or by age; the cleaner never
    moves it. So a log that begins at 0 says all there is, and one that begins later does not. Deletion by age is no
    exception: it goes by the broker's clock, entries expire by event time, which may stand still.
    """

    trim: TrimEntry | None = None
    """Set once the application deletes its changelogs before safe images."""
    accept_trimmed: bool = False
    """Take what a log still has for all there is: for measuring how long reading takes, never for state."""

    @classmethod
    def of(cls, catalog: Catalog) -> ChangelogPolicy:
        """The terms of an application."""
        return cls(catalog.app.trim)

    def images(self, chosen: str | None) -> str | None:
        """Where images are: the place that was chosen, or the one that the catalog names.

        Raises ``ConfigError`` for one of the catalog's that says by which server it is reached.
        """
        if chosen or self.trim is None:
            return chosen or None
        named = self.trim.images
        names = {parameter.partition("=")[0] for parameter in Address.of(named).parameters}
        if not names <= _HARMLESS_PARAMETERS:
            raise ConfigError(
                f"Only the control topic says that images are at {shown(named)}, and by which server they are reached.",
                action=f"if that is where you keep them, set `images` to {shown(named)}: this process would show its"
                " credentials to that server. If not, see who may write to the control topic.",
                location=shown(named),
            )
        return named


WHOLE_LOGS = ChangelogPolicy()
"""The terms of an application whose changelogs were never trimmed."""
