"""Catalog entries as older versions wrote them, in the form of this one."""

from __future__ import annotations

from typing import Any


def upgraded_stage(entry: dict[str, Any]) -> dict[str, Any]:
    """A stage's entry; format 1 had source topics, or one re-key step, instead of inputs.

    Raises ``ValueError`` and ``TypeError`` for what no version wrote.
    """
    if "inputs" in entry:
        return entry
    rest = dict(entry)
    sources, step, upstream = (
        rest.pop("sources", ()),
        rest.pop("repartition", None),
        rest.pop("upstream", None),
    )
    inputs = [{"name": topic} for topic in sources]
    if step is not None:
        inputs.append({"name": step, "upstream": upstream})
    if not inputs:
        raise ValueError("a stage that reads nothing")
    return {**rest, "inputs": inputs}
