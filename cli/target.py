"""Which application a command is about: code (`APP`), or an id when the catalog is enough (`--app`)."""

from __future__ import annotations

from dataclasses import dataclass

from stateflow.cli.application import configured
from stateflow.cli.which_broker import settings_without_code
from stateflow.config import AppOptions
from stateflow.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Chosen:
    """An application's id, and its settings as code, file, environment and command line have them."""

    app: str
    options: AppOptions


def chosen(target: str | None, app_id: str | None, brokers: str | None) -> Chosen:
    """The application that APP or ``--app`` names, exactly one of them; the code is loaded only for APP."""
    if (target is None) == (app_id is None):
        raise ConfigError(
            "It is not clear which application is meant.",
            action="give either APP (module:attribute or file.py:attribute) or --app ID.",
        )
    if target is not None:
        app = configured(target, brokers=brokers)
        return Chosen(app.id, app.options)
    assert app_id is not None, "exactly one of the two is given"
    return Chosen(app_id, settings_without_code(app_id, brokers).options)
