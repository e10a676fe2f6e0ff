"""Which application a command is about: code (`APP`), or an id when the catalog is enough (`--app`)."""

from __future__ import annotations

from stateflow.errors import ConfigError


def application_id(target: str | None, app_id: str | None) -> str:
    """The application's id. Loads the code only when it is named; raises ``ConfigError`` unless exactly one
    is given.
    """
    if (target is None) == (app_id is None):
        raise ConfigError(
            "It is not clear which application is meant.",
            action="give either APP (module:attribute or file.py:attribute) or --app ID.",
        )
    if app_id is not None:
        return app_id
    assert target is not None, "exactly one of the two is given"
    from stateflow.app import load

    return load(target).id
