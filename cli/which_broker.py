"""The broker that commands use: option, environment, file, code, else the broker of `stateflow up`, in this order."""

from __future__ import annotations

from stateflow.config import AppOptions, Settings, resolve
from stateflow.connectors.broker.running import found_broker


def with_running_broker(settings: Settings) -> Settings:
    """The settings, with the broker of `stateflow up` where nobody has chosen one.

    Raises ``ConfigError`` when it is not clear which of several that is.
    """
    running = found_broker() if settings.origins["brokers"] == "default" else None
    if running is None:
        return settings
    return settings.defaulting("brokers", running.bootstrap, f"`stateflow up` ({running.name})")


def settings_without_code(app: str, brokers: str | None = None) -> Settings:
    """The settings of an application that is known by its id, or of none (the empty text)."""
    given = {} if brokers is None else {"brokers": brokers}
    return with_running_broker(resolve(app, AppOptions(), given))


def default_brokers() -> str:
    """The broker of commands that concern no application, or take it by its id."""
    return settings_without_code("").options.brokers
