"""Names of settings that there are not, and which ones may be meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stateflow.errors import ConfigError

_MISSPELLED_SIMILARITY = 0.9
_MEANT_SIMILARITY = 0.7


def refuse_misspelled(variable: str, known: Mapping[str, str]) -> None:
    """Raise for a variable that is nearly a setting; others with our prefix belong to other parts."""
    import difflib

    meant = difflib.get_close_matches(variable, known, 1, _MISSPELLED_SIMILARITY)
    if meant:
        raise ConfigError(
            f"There is no setting of the name {variable} (environment).",
            action=f"It looks like {meant[0]} ({known[meant[0]]}): correct or unset it.",
            setting=variable,
        )


def check_names(given: Iterable[str], known: Iterable[str], origin: str) -> None:
    """Raise ``ConfigError`` for the first name that is no setting."""
    names = list(known)
    for name in sorted(set(given) - set(names)):
        import difflib

        meant = difflib.get_close_matches(name, names, 1, _MEANT_SIMILARITY)
        raise ConfigError(
            f"There is no setting {name!r} ({origin}).",
            action=f"{f'{meant[0]} may be meant. ' if meant else ''}The settings are: {', '.join(names)}.",
        )
