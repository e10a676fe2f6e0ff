"""Loading the native core: which library, whether it may be used, and what is said of it.

``STATEFLOW_NATIVE`` is ``auto`` (the default: used where it is there and passes its checks), ``1`` (an error where it
cannot be used) or ``0`` (never). Without it everything works in Python, with the same results.

What is checked before the first use: that the library was built of these very sources (its name has their hash), its
ABI number, that the interpreter is CPython with its lock, and a few results that are known beforehand.
"""

from __future__ import annotations

import functools
import os
import platform
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from stateflow.errors import ConfigError
from stateflow.native.building import library_path
from stateflow.native.folds import Folding, Folds
from stateflow.native.library import ABI, Core, Unusable

VARIABLE = "STATEFLOW_NATIVE"
_CHOICES = ("auto", "0", "1")
_GOLDEN = {b"": 275646681, b"21": 1173551340, b"foobar": 1357151166, b"a-little-bit-long-string": 1161502112}
"""Of Kafka's own UtilsTest, with the sign bit cleared."""


@dataclass(frozen=True, slots=True)
class NativeState:
    """Which of the two is in use in this process."""

    core: Core | None
    why: str
    """A sentence for the operator."""

    is_chosen: bool = False
    """True where somebody has asked for plain Python."""

    @property
    def in_use(self) -> bool:
        """True when the core is."""
        return self.core is not None

    def __str__(self) -> str:
        return f"{'the native core' if self.in_use else 'plain Python'}: {self.why}"


def core() -> Core | None:
    """The core, if this process uses it. Raises ``ConfigError`` when it must and cannot."""
    return native_state().core


@functools.cache
def native_state() -> NativeState:
    """What is in use, decided once per process. Raises ``ConfigError`` for a choice that cannot be had."""
    choice = os.environ.get(VARIABLE) or "auto"
    if choice not in _CHOICES:
        raise ConfigError(
            f"{VARIABLE} is {choice!r}.", action=f"set it to one of {', '.join(_CHOICES)}, or unset it."
        )
    if choice == "0":
        return NativeState(None, f"{VARIABLE} is 0", is_chosen=True)
    try:
        path = library_path()
        return NativeState(loaded(path), f"{path.name} passed its checks")
    except Unusable as error:
        if choice == "1":
            raise ConfigError(
                f"{VARIABLE} is 1, and the native core cannot be used: {error}.",
                action="build it with `python -m stateflow.native`, or set it to auto.",
            ) from error
        return NativeState(None, str(error))


def loaded(path: Path) -> Core:
    """The core of one library, checked. Raises ``Unusable``."""
    if platform.python_implementation() != "CPython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise Unusable(f"it needs CPython with its lock, and this is {sys.version.split('[')[0].strip()}")
    if not path.exists():
        raise Unusable("it was not built for this machine")
    try:
        made = Core(path)
    except (OSError, AttributeError) as error:
        raise Unusable(f"{path.name} cannot be loaded: {error}") from error
    if made.abi != ABI:
        raise Unusable(f"{path.name} has ABI {made.abi}, and {ABI} is needed")
    _check(made)
    return made


def _check(made: Core) -> None:
    """Results that are known beforehand."""
    if made.routing_hashes(list(_GOLDEN), 0) != list(_GOLDEN.values()):
        raise Unusable("its hashes are not those of Kafka's clients")
    table = made.newest_new(b"\xff")
    try:
        keys: list[bytes | None] = [b"b", b"a", None, b"\xff1", b"b", b"ab"]
        values: list[bytes | None] = [b"1", b"2", b"3", b"4", None, b""]
        size_bytes = made.newest_add(table, keys, values)
        made.newest_sort(table)
        rows = made.newest_rows(table, 0, made.newest_count(table))
    finally:
        made.newest_free(table)
    if (size_bytes, rows) != (11, [(b"a", b"2"), (b"ab", b""), (b"b", None)]):
        raise Unusable("it does not find the newest values")
    counts = Folds(made, Folding("count"), "long", of_windows=False)
    counts.add(
        [b"b", b"a", b"b"], None, lambda keys: [bytes(7) + b"\x05" if key == b"b" else None for key in keys]
    )
    if counts.columns() != ([b"a", b"b"], [bytes(7) + b"\x01", bytes(7) + b"\x07"]):
        raise Unusable("it does not count as Python does")
    folds = Folds(made, Folding("sum", floats=True), "msgpack", of_windows=False)
    folds.add([b"b", b"a", b"b"], [1, 0.5, -200], lambda keys: [None] * len(keys))
    if folds.columns() != ([b"a", b"b"], [b"\xcb?\xe0" + bytes(6), b"\xd1\xff\x39"]):
        raise Unusable("it does not add up as Python does")
