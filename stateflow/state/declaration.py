"""What a class declares: ``state(…)``, which is taken apart when the class becomes a part of an application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from stateflow.codec.base import Codec
    from stateflow.state.evolution import Migration


def state(
    *,
    default: Any = None,
    initial: Any = None,
    reduce: Callable[[Any, Any], Any] | None = None,
    merge: Callable[[Any, Any], Any] | None = None,
    index: Mapping[str, Callable[[Any], Any]] | None = None,
    ttl: timedelta | None = None,
    ttl_per_write: bool = False,
    history: timedelta | None = None,
    max_length: int | None = None,
    max_versions: int | None = None,
    codec: Codec[Any] | None = None,
    key_codec: Codec[Any] | None = None,
    version: int = 1,
    migrations: Mapping[int, Migration] | None = None,
) -> Any:
    """Declare a state of an operator class; the annotation beside it says of which type.

    ``default`` is what a ``Value`` reads before it is set. ``reduce`` is the associative function of a
    ``Reducing``, ``initial`` its neutral element. ``merge`` makes one value of two where two states of one key
    meet (``Value``, entries of a ``MapOf``, versions of one instant). ``index`` names functions of a value by which
    the entries of a ``MapOf``, or the keys of a ``Value``, can be found. ``ttl`` forgets what was not written for
    so long in event time; ``ttl_per_write`` lets each write say its own (``value.set(v, ttl=…)``). ``history`` and
    ``max_versions`` say how much a ``Versioned`` remembers. ``max_length`` drops the oldest elements of a
    ``ListOf`` and refuses further ones of a ``SetOf``. ``codec`` and ``key_codec`` (``MapOf``) replace the codecs
    inferred from the annotation. ``version`` counts changes of the value's schema; ``migrations`` has, for each
    older version, the function that turns its values into the next version's. Options that do not fit the type
    are refused with ``GraphError`` when the graph is built. ``docs/state.md`` has an example of each type.
    """
    from stateflow.state.kinds import StateOptions  # with all that stands behind types of state

    return StateOptions(
        default=default,
        initial=initial,
        reduce=reduce,
        merge=merge,
        index=index,
        ttl=ttl,
        ttl_per_write=ttl_per_write or None,
        history=history,
        max_length=max_length,
        max_versions=max_versions,
        codec=codec,
        key_codec=key_codec,
        version=version,
        migrations=migrations,
    )
