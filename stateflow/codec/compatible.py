"""Can values that one codec wrote be read by another? Decided from the two descriptions, never from the values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stateflow.codec.avro_resolution import avro_obstacles

_SAID_ELSEWHERE = frozenset(
    {"title", "description", "default", "examples", "$defs", "$ref", "discriminator", "type", "anyOf", "enum"}
    | {"properties", "required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems"}
)
"""Keywords that carry no limit on values, or that are compared by a rule of their own."""
_FORMS = ("format", "contentEncoding")
"""Keywords that say what a string stands for: one without them is not read as one that has them, nor the reverse."""

Described = Mapping[str, Any]


def obstacles(new: Described, old: Described) -> list[str]:
    """Why values written as ``old`` may not be readable as ``new``; nothing when all of them are.

    Fields of a declared type may be added with a default and a type may be widened. A field that is gone counts as
    an obstacle, although it could be passed over: writing the value back would lose it silently.
    """
    if new == old:
        return []
    if new["codec"] == old["codec"] == "avro":
        return list(avro_obstacles(new["schema"], old["schema"]))
    if new["codec"] != old["codec"] or new["codec"] not in ("json", "msgpack"):
        return [f"{_named(old)} became {_named(new)}"]
    if "type" not in new:
        return []
    if "type" not in old:
        return [f"{_named(old)} of any shape became {_named(new)}"]
    if new.get("schema") is None or old.get("schema") is None:
        return [] if new["type"] == old["type"] else [f"{_named(old)} became {_named(new)}"]
    return list(_Comparison(new["schema"], old["schema"]).obstacles())


def _named(described: Described) -> str:
    if "bits" in described:
        return f"{described['codec']} of {described['bits']} bits"
    return f"{described['codec']} of {described['type']}" if "type" in described else str(described["codec"])


class _Comparison:
    """Two JSON schemas as msgspec writes them, each with its definitions."""

    def __init__(self, new: Described, old: Described) -> None:
        self._new, self._old = new, old
        self._met: set[tuple[str, str]] = set()

    def obstacles(self) -> Iterator[str]:
        """Why a value of the old schema may not fit the new one."""
        return self._between(self._new, self._old, "the value")

    def _between(self, new: Described, old: Described, where: str) -> Iterator[str]:
        names = (str(new.get("$ref", "")), str(old.get("$ref", "")))
        if all(names):
            if names in self._met:  # a type inside itself: compared where it was met first
                return
            self._met.add(names)
        new, old = _resolved(new, self._new), _resolved(old, self._old)
        if not _limits(new):
            return
        if "anyOf" in old or "anyOf" in new:
            yield from self._alternatives(new.get("anyOf", [new]), old.get("anyOf", [old]), where)
        elif "enum" in new or "enum" in old:
            yield from _enums(new, old, where)
        elif new.get("type") != old.get("type") and (old.get("type"), new.get("type")) != (
            "integer",
            "number",
        ):
            yield f"{where} was {_type(old)} and is {_type(new)}"
        else:
            yield from self._same_type(new, old, where)

    def _alternatives(self, new: list[Described], old: list[Described], where: str) -> Iterator[str]:
        for one in old:
            if not any(_fits(self, choice, one, where) for choice in new):
                yield f"{where} may have been {_type(_resolved(one, self._old))}, which it no longer may"

    def _same_type(self, new: Described, old: Described, where: str) -> Iterator[str]:
        for keyword in sorted((new.keys() | old.keys()) - _SAID_ELSEWHERE):
            is_limit = keyword in new or keyword in _FORMS
            if is_limit and new.get(keyword) != old.get(keyword):
                now, then = (repr(each[keyword]) if keyword in each else "none" for each in (new, old))
                yield f"{where}: {keyword} is {now} and was {then}"
        if new.get("type") == "object":
            yield from self._objects(new, old, where)
        elif new.get("type") == "array":
            yield from self._arrays(new, old, where)

    def _objects(self, new: Described, old: Described, where: str) -> Iterator[str]:
        before, after = old.get("properties", {}), new.get("properties", {})
        for name in before:
            if name not in after:
                yield f"the field {name!r} of {where} is gone"
            else:
                yield from self._between(after[name], before[name], f"the field {name!r}")
        for name in new.get("required", ()):
            if name not in old.get("required", ()):
                has = "must now be there" if name in before else "is new and has no default"
                yield f"the field {name!r} of {where} {has}"
        if isinstance(new.get("additionalProperties"), dict):
            inner = old.get("additionalProperties", {})
            yield from self._between(
                new["additionalProperties"], inner if isinstance(inner, dict) else {}, f"what {where} maps to"
            )

    def _arrays(self, new: Described, old: Described, where: str) -> Iterator[str]:
        before, after = old.get("prefixItems", []), new.get("prefixItems", [])
        if len(after) < len(before) or new.get("minItems", 0) > old.get("minItems", 0):
            yield f"{where} has another number of items"
            return
        if "maxItems" in new and not after and new["maxItems"] != old.get("maxItems"):
            yield f"{where} is limited to {new['maxItems']} items"
        for index, item in enumerate(before):
            yield from self._between(after[index], item, f"item {index} of {where}")
        if isinstance(new.get("items"), dict):
            items = old.get("items", {})
            yield from self._between(
                new["items"], items if isinstance(items, dict) else {}, f"an item of {where}"
            )


def _fits(comparison: _Comparison, new: Described, old: Described, where: str) -> bool:
    met = set(comparison._met)
    fits = next(comparison._between(new, old, where), None) is None
    if not fits:
        comparison._met = met
    return fits


def _resolved(schema: Described, root: Described) -> Described:
    if "$ref" not in schema:
        return schema
    found: Described = root["$defs"][schema["$ref"].rpartition("/")[2]]
    return found


def _limits(schema: Described) -> bool:
    """False for the schema of any value."""
    return bool(schema.keys() - {"title", "description", "default", "examples", "$defs"})


def _enums(new: Described, old: Described, where: str) -> Iterator[str]:
    if "enum" not in old:
        yield f"{where} was {_type(old)} and is one of {new['enum']}"
        return
    values = old["enum"]
    if "enum" in new:
        gone = [value for value in values if value not in new["enum"]]
        if gone:
            yield f"{where} may have been {gone[0]!r}, which it no longer may"
    elif new.keys() - _SAID_ELSEWHERE or not all(_is_of(value, new.get("type")) for value in values):
        yield f"{where} was one of {values} and is {_type(new)}"


def _is_of(value: object, type_: object) -> bool:
    kinds: dict[object, type] = {"string": str, "integer": int}
    return type_ in kinds and isinstance(value, kinds[type_]) and not isinstance(value, bool)


def _type(schema: Described) -> str:
    if "enum" in schema:
        return f"one of {schema['enum']}"
    form = next((f" ({schema[each]})" for each in _FORMS if each in schema), "")
    return f"{schema.get('title') or schema.get('type') or 'of any type'}{form}"
