"""What a graph is, as data and as text."""

from __future__ import annotations

from typing import Any

from stateflow.operators.topology.pipeline import StagePlan
from stateflow.operators.topology.topology import Stage, Topology


def describe(topology: Topology) -> dict[str, Any]:
    """Stages, upstream first, with steps, stores and topics; JSON-able."""
    return {"app": topology.app, "stages": [_stage(stage) for stage in topology.stages]}


def _stage(stage: Stage) -> dict[str, Any]:
    assert isinstance(stage.build, StagePlan), "stages are split from graphs"
    return {
        "name": stage.name,
        "inputs": [{"name": port.name, "upstream": port.upstream} for port in stage.inputs],
        "steps": [
            {"name": node.name, "kind": node.kind, "after": [parent.name for parent in node.parents]}
            for node in stage.build.nodes
        ],
        "stores": [_store(store) for store in stage.stores],
        "looks_up": [
            {name: getattr(place, name) for name in ("name", "topic", "bytes_max", "fingerprint")}
            for place in stage.looks_up
        ],
        "outputs": list(stage.outputs),
        "rekeys": list(stage.rekeys),
    }


def _store(store: Any) -> dict[str, Any]:
    fields = ("name", "kind", "layout", "key_codec", "value_codec", "window_ms", "grace_ms", "retention_ms")
    return {name: getattr(store, name) for name in fields}


def describe_text(described: dict[str, Any]) -> str:
    """One paragraph per stage."""
    lines = [f"application {described['app']}"]
    for stage in described["stages"]:
        reads = ", ".join(map(_input, stage["inputs"]))
        lines += ["", f"stage {stage['name']}", f"  reads    {reads}"]
        shown = [step for step in stage["steps"] if step["kind"] not in ("stream", "read")]
        lines += [f"  step     {_step(step)}" for step in shown]
        lines += [f"  store    {store['name']} ({_kind(store)})" for store in stage["stores"]]
        lines += [f"  looks up {_looked_up(place)}" for place in stage["looks_up"]]
        lines += [f"  re-keys  {name}" for name in stage["rekeys"]]
        lines += [f"  writes   {topic}" for topic in stage["outputs"]]
    return "\n".join(lines)


def _input(port: dict[str, Any]) -> str:
    if port["upstream"] is None:
        return str(port["name"])
    return f"re-keyed records of {port['name']} from {port['upstream']}"


def _looked_up(place: dict[str, Any]) -> str:
    if place["topic"]:
        return f"{place['name']} (all of {place['topic']}, at most {place['bytes_max'] / 2**20:g} MB in each worker)"
    return f"{place['name']} (static, {place['fingerprint'][:8]})"


def _step(step: dict[str, Any]) -> str:
    own = step["name"] if step["name"].startswith(step["kind"]) else f"{step['kind']} {step['name']}"
    return f"{own}  after {', '.join(step['after'])}"


def _kind(store: dict[str, Any]) -> str:
    parts = [store["kind"], f"key {store['key_codec']['codec']}", f"value {store['value_codec']['codec']}"]
    parts += [
        f"{label} {store[name]} ms"
        for label, name in (("window", "window_ms"), ("grace", "grace_ms"), ("kept", "retention_ms"))
        if store[name] is not None
    ]
    return ", ".join(parts)
