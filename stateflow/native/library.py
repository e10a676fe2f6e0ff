"""The functions of the native core as Python calls them: signatures, and memory that ends with an object."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import c_char_p, c_int64, c_uint64, c_void_p, py_object
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stateflow.native.folds import Number
    from stateflow.native.newest import Row

ABI = 7

PYTHON_FUNCTIONS = (
    "PyBytes_AsStringAndSize",
    "PyBytes_FromStringAndSize",
    "PyUnicode_FromString",
    "PyLong_FromLongLong",
    "PyList_Size",
    "PyList_GetItem",
    "PyList_New",
    "PyList_SetItem",
    "PyTuple_New",
    "PyTuple_SetItem",
    "PyTuple_GetItem",
    "Py_IncRef",
    "Py_DecRef",
    "PyErr_NoMemory",
    "PyLong_AsLongLongAndOverflow",
    "PyFloat_AsDouble",
    "PyFloat_FromDouble",
    "PyObject_Type",
    "PyErr_Occurred",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
)
"""CPython's stable ABI, in the order of ``sf_python`` in source/core.h; the addresses of some objects follow."""
_PYTHON_OBJECTS = (None, int, float, bool)


class Unusable(Exception):
    """The core cannot be used, and why."""


def function_addresses(library: ctypes.CDLL, names: tuple[str, ...]) -> list[int | None]:
    """Where functions of a library are. Raises ``AttributeError`` for one that is missing."""
    return [ctypes.cast(getattr(library, name), c_void_p).value for name in names]


def pointers(found: list[int | None]) -> Any:
    """Addresses as the core takes them."""
    return (c_void_p * len(found))(*found)


class Core:
    """One loaded library. Calls without objects let other threads of Python run meanwhile, where they take any time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._free = ctypes.CDLL(str(path))
        self._held = ctypes.PyDLL(str(path))
        self.abi = self.function("sf_abi", c_int64)()
        if self.abi != ABI:
            return
        self._held.sf_py_begin(_python())
        self._hashes = self.object_function("sf_py_routing_hashes", py_object, py_object, c_int64)
        self._newest_new = self.function("sf_newest_new", c_void_p, c_uint64, c_char_p, c_int64)
        self.newest_free = self.function("sf_newest_free", None, c_void_p)
        self.newest_clear = self.function("sf_newest_clear", None, c_void_p)
        self.newest_count = self.short_function("sf_newest_count", c_int64, c_void_p)
        self.newest_bytes = self.short_function("sf_newest_bytes", c_int64, c_void_p)
        self._newest_sort = self.function("sf_newest_sort", c_int64, c_void_p)
        self.newest_add = self.object_function("sf_py_newest_add", c_int64, c_void_p, py_object, py_object)
        self._folds_new = self.function("sf_folds_new", c_void_p, c_uint64, *[c_int64] * 5)
        self.folds_free = self.function("sf_folds_free", None, c_void_p)
        self.folds_clear = self.function("sf_folds_clear", None, c_void_p)
        self.folds_changed = self.short_function("sf_folds_changed", c_int64, c_void_p)
        self.folds_opened = self.short_function("sf_folds_opened", c_int64, c_void_p)
        self.folds_bytes = self.short_function("sf_folds_bytes", c_int64, c_void_p)
        self.folds_known_from = self.short_function("sf_folds_known_from", None, c_void_p, c_int64)
        self.folds_committed = self.function("sf_folds_committed", None, c_void_p, c_int64)
        self.folds_limit = self.function("sf_folds_limit", None, c_void_p, c_int64)
        self._folds_order = self.function("sf_folds_order", c_int64, c_void_p)
        self._folds_begin = self.object_function(
            "sf_py_folds_begin", py_object, c_void_p, py_object, py_object
        )
        self._folds_learn = self.object_function("sf_py_folds_learn", c_int64, c_void_p, py_object)
        self._folds_add = self.object_function("sf_py_folds_add", c_int64, c_void_p, py_object, c_void_p)
        self._folds_delete = self.function("sf_folds_delete", c_int64, c_void_p, c_void_p)
        self._folds_numbers = self.object_function("sf_py_folds_numbers", py_object, c_void_p)
        self._folds_rows = self.object_function("sf_py_folds_rows", py_object, c_void_p, c_int64)
        self._folds_take_opened = self.object_function("sf_py_folds_opened", py_object, c_void_p)
        self._rows = self.object_function("sf_py_newest_rows", py_object, c_void_p, c_int64, c_int64)

    def routing_hashes(self, keys: list[bytes], divisor: int) -> list[int]:
        """The 31-bit hash of every key, modulo ``divisor`` if that is not 0."""
        found: list[int] = self._hashes(keys, divisor)
        return found

    def newest_new(self, ignored: bytes) -> int:
        """A table of newest values, to be freed; keys that begin with ``ignored`` are left out of it."""
        return allocated(self._newest_new(_seed(), ignored, len(ignored)))

    def newest_sort(self, table: int) -> None:
        """Order a table's entries by their keys; until it is cleared nothing may be added."""
        done(self._newest_sort(table))

    def newest_rows(self, table: int, first: int, count: int) -> list[Row]:
        """Entries of a sorted table."""
        found: list[Row] = self._rows(table, first, count)
        return found

    def folds_new(self, operation: int, kept_as: int, kinds: int, skips_none: bool, of_windows: bool) -> int:
        """Numbers to be folded, to be freed; see source/folds.c."""
        return allocated(self._folds_new(_seed(), operation, kept_as, kinds, skips_none, of_windows))

    def folds_begin(self, folds: int, keys: Sequence[bytes], suffix: bytes) -> list[bytes]:
        """Begin a batch of keys, a suffix behind each; those that must be looked for on disk, in order."""
        unknown: list[bytes] = self._folds_begin(folds, _list(keys), suffix)
        return unknown

    def folds_learn(self, folds: int, values: list[bytes | None]) -> bool:
        """What is on disk of these; False when one of them is no number to be folded."""
        return bool(self._folds_learn(folds, values) == 0)

    def folds_add(self, folds: int, values: Sequence[object]) -> tuple[int, int] | None:
        """Fold a value into each number of the batch; None when that is refused."""
        told = (c_int64 * 2)()
        refused = self._folds_add(folds, _list(values), told)
        return None if refused else (told[0], told[1])

    def folds_delete(self, folds: int) -> tuple[int, int]:
        """Delete the numbers of the batch. Raises ``MemoryError``."""
        told = (c_int64 * 2)()
        done(self._folds_delete(folds, told))
        return told[0], told[1]

    def folds_numbers(self, folds: int) -> list[Number]:
        """The numbers of the batch."""
        found: list[Number] = self._folds_numbers(folds)
        return found

    def folds_order(self, folds: int) -> None:
        """Order what was changed by its keys, which is what the next two take longest for. Raises ``MemoryError``."""
        done(self._folds_order(folds))

    def folds_encoded(self, folds: int) -> tuple[list[bytes], list[bytes | None]]:
        """Keys and encoded numbers that were changed, by key."""
        found: tuple[list[bytes], list[bytes | None]] = self._folds_rows(folds, 1)
        return found

    def folds_objects(self, folds: int) -> tuple[list[bytes], list[Number]]:
        """Keys and numbers that were changed."""
        found: tuple[list[bytes], list[Number]] = self._folds_rows(folds, 0)
        return found

    def folds_take_opened(self, folds: int) -> list[bytes]:
        """Windows that were opened, by time and key."""
        found: list[bytes] = self._folds_take_opened(folds)
        return found

    def function(self, name: str, result: Any, *arguments: Any) -> Any:
        """A function without objects: the interpreter's lock is let go of during a call."""
        return _typed(self._free, name, result, arguments)

    def short_function(self, name: str, result: Any, *arguments: Any) -> Any:
        """A function without objects that takes no time: to let go of the lock, and get it back, would take longest."""
        return _typed(self._held, name, result, arguments)

    def object_function(self, name: str, result: Any, *arguments: Any) -> Any:
        """A function over objects: the lock is kept, and errors it set are raised."""
        return _typed(self._held, name, result, arguments)


def _seed() -> int:
    return int.from_bytes(os.urandom(8), "little")


def _list(items: Sequence[Any]) -> list[Any]:
    return items if isinstance(items, list) else list(items)


def _python() -> Any:
    """What the core takes of the interpreter."""
    return pointers([*function_addresses(ctypes.pythonapi, PYTHON_FUNCTIONS), *map(id, _PYTHON_OBJECTS)])


def _typed(library: ctypes.CDLL, name: str, result: Any, arguments: tuple[Any, ...]) -> Any:
    function = getattr(library, name)
    function.restype, function.argtypes = result, list(arguments)
    return function


def allocated(address: int | None) -> int:
    """An address that is one. Raises ``MemoryError``."""
    if address is None:
        raise MemoryError("the native core found no memory")
    return address


def done(code: int) -> None:
    """Nothing, for a call that ended well. Raises ``MemoryError``."""
    if code != 0:
        raise MemoryError("the native core found no memory")
