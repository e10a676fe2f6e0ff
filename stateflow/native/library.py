"""The functions of the native core as Python calls them: signatures, and memory that ends with an object."""

from __future__ import annotations

import ctypes
import os
from ctypes import c_char_p, c_int64, c_uint64, c_void_p, py_object
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stateflow.native.newest import Row

ABI = 1

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
    "Py_IncRef",
    "Py_DecRef",
    "PyErr_NoMemory",
)
"""CPython's stable ABI, in the order of ``sf_python`` in source/core.h; None's address follows."""


class Unusable(Exception):
    """The core cannot be used, and why."""


def function_addresses(library: ctypes.CDLL, names: tuple[str, ...]) -> list[int | None]:
    """Where functions of a library are. Raises ``AttributeError`` for one that is missing."""
    return [ctypes.cast(getattr(library, name), c_void_p).value for name in names]


def pointers(found: list[int | None]) -> Any:
    """Addresses as the core takes them."""
    return (c_void_p * len(found))(*found)


class Core:
    """One loaded library. Calls without objects let other threads of Python run meanwhile."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._free = ctypes.CDLL(str(path))
        self._held = ctypes.PyDLL(str(path))
        self.abi = self.function("sf_abi", c_int64)()
        if self.abi != ABI:
            return
        self._held.sf_py_begin(pointers([*function_addresses(ctypes.pythonapi, PYTHON_FUNCTIONS), id(None)]))
        self._hashes = self.object_function("sf_py_routing_hashes", py_object, py_object, c_int64)
        self._newest_new = self.function("sf_newest_new", c_void_p, c_uint64, c_char_p, c_int64)
        self.newest_free = self.function("sf_newest_free", None, c_void_p)
        self.newest_clear = self.function("sf_newest_clear", None, c_void_p)
        self.newest_count = self.function("sf_newest_count", c_int64, c_void_p)
        self.newest_bytes = self.function("sf_newest_bytes", c_int64, c_void_p)
        self._newest_sort = self.function("sf_newest_sort", c_int64, c_void_p)
        self.newest_add = self.object_function("sf_py_newest_add", c_int64, c_void_p, py_object, py_object)
        self._rows = self.object_function("sf_py_newest_rows", py_object, c_void_p, c_int64, c_int64)

    def routing_hashes(self, keys: list[bytes], divisor: int) -> list[int]:
        """The 31-bit hash of every key, modulo ``divisor`` if that is not 0."""
        found: list[int] = self._hashes(keys, divisor)
        return found

    def newest_new(self, ignored: bytes) -> int:
        """A table of newest values, to be freed; keys that begin with ``ignored`` are left out of it."""
        seed = int.from_bytes(os.urandom(8), "little")
        return allocated(self._newest_new(seed, ignored, len(ignored)))

    def newest_sort(self, table: int) -> None:
        """Order a table's entries by their keys; until it is cleared nothing may be added."""
        done(self._newest_sort(table))

    def newest_rows(self, table: int, first: int, count: int) -> list[Row]:
        """Entries of a sorted table."""
        found: list[Row] = self._rows(table, first, count)
        return found

    def function(self, name: str, result: Any, *arguments: Any) -> Any:
        """A function without objects: the interpreter's lock is let go of during a call."""
        return _typed(self._free, name, result, arguments)

    def object_function(self, name: str, result: Any, *arguments: Any) -> Any:
        """A function over objects: the lock is kept, and errors it set are raised."""
        return _typed(self._held, name, result, arguments)


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
