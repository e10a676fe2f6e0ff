"""Settings of the Kafka client where no application's code gives them: security above all, and never shown.

Later ones win: ``[client]`` of ``stateflow.toml``, the environment (``STATEFLOW_CLIENT__SASL_PASSWORD``), a properties
file. That file has a setting per line, as librdkafka or Kafka's own tools name them; what only a
JVM understands (a JAAS line, a truststore) is translated where that is possible and refused otherwise.
"""

from __future__ import annotations

import re
from pathlib import Path

from stateflow.config import AppOptions, resolve
from stateflow.errors import ConfigError

BROKERS = "bootstrap.servers"
_JAAS, _JAAS_MODULES = "sasl.jaas.config", ("PlainLoginModule", "ScramLoginModule")
_JAAS_PAIR = re.compile(r"""(username|password)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;]+)""")
_PEM_FILES = {"ssl.truststore": "ssl.ca.location", "ssl.keystore": "ssl.certificate.location"}


def client_settings(path: Path | None, app_id: str | None = None) -> dict[str, object]:
    """The client's settings from all places; ``bootstrap.servers`` is among them only if the file has it.

    Raises ``ConfigError``, which names a setting but never its value.
    """
    given = {} if path is None else translated(read_properties(path))
    brokers = given.pop(BROKERS, None)
    settings = dict(resolve(app_id or "", AppOptions(client={}), {"client": given}).options.client)
    return settings if brokers is None else {**settings, BROKERS: brokers}


def read_properties(path: Path) -> dict[str, str]:
    """A properties file: ``name=value`` or ``name: value``, comments with # or !, lines continued by a backslash."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.", action="Give a text file.") from error
    found: dict[str, str] = {}
    for number, line in enumerate(re.sub(r"\\\r?\n[ \t]*", "", text).splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        parts = re.split(r"\s*[=:]\s*", stripped, maxsplit=1)
        if len(parts) != 2 or not parts[0]:
            raise ConfigError(
                f"Line {number} of {path} is not a setting.", action="Write security.protocol=SASL_SSL."
            )
        found[parts[0]] = parts[1]
    return found


def translated(properties: dict[str, str]) -> dict[str, str]:
    """The same settings in librdkafka's terms, where the file was written for a JVM client."""
    found = dict(properties)
    jaas = found.pop(_JAAS, None)
    if jaas is not None:
        found = {**_from_jaas(jaas), **found}
    for store, location in _PEM_FILES.items():
        found = _from_store(found, store, location)
    return found


def _from_jaas(jaas: str) -> dict[str, str]:
    if not any(module in jaas for module in _JAAS_MODULES):
        raise ConfigError(
            f"{_JAAS} names a login module that is not for a user and a password.",
            action="Set what librdkafka needs for that mechanism (sasl.mechanism, sasl.oauthbearer.… ) instead.",
            setting=_JAAS,
        )
    found = {}
    for name, value in _JAAS_PAIR.findall(jaas):
        plain = re.sub(r"\\(.)", r"\1", value[1:-1]) if value[0] in "\"'" else value
        found[f"sasl.{name}"] = plain
    return found


def _from_store(properties: dict[str, str], store: str, location: str) -> dict[str, str]:
    """A PEM store becomes a file name; librdkafka cannot read a Java one."""
    own = {name: value for name, value in properties.items() if name.startswith(f"{store}.")}
    rest = {name: value for name, value in properties.items() if name not in own}
    if not own:
        return rest
    if own.get(f"{store}.type", "JKS").upper() == "PEM" and f"{store}.location" in own:
        path = own[f"{store}.location"]
        key = {"ssl.key.location": path} if store == "ssl.keystore" else {}
        return {location: path, **key, **rest}
    raise ConfigError(
        f"{store}.location is a Java key store, which this client cannot read.",
        action=f"Export it as PEM (keytool -exportcert -rfc) and set {location}=FILE.",
        setting=f"{store}.location",
    )
