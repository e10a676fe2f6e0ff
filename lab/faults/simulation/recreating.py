"""What no restore can repair: topics created again, input gone before it was read. It must be refused, loudly."""

from __future__ import annotations

from stateflow.lab.faults.simulation.history import Step
from stateflow.lab.faults.simulation.oracle import Finding, twice_only
from stateflow.lab.faults.simulation.world import World
from stateflow.log.base import TopicSpec
from stateflow.record import TopicPartition

_TURNS = 12


def recreated(world: World, step: Step) -> list[Finding]:
    """Do it, let what runs go on for a while, then start anew on every machine: each start must end with an error."""
    if not world.is_prepared():
        return []
    topic = _topic(world, step.detail)
    world.notes.add(str(step))
    world.producers.close_all()
    if step.detail == "past":  # a worker that runs may have read it already
        end_all(world)
    if not _spoil(world, topic, step.detail):
        return []
    world.notes.struck("recreate", step.detail, f"  {topic} is not what it was")
    machine = world.machines[step.worker]
    if step.amount and machine.worker is not None and machine.process is not None:
        machine.process.strike = None
        world.producers.send(step.worker, 3, "plain")
        world.turn(machine, _TURNS)
    end_all(world)
    findings = [Finding("silent", "progress", problem) for problem in world.problems]
    return findings + _refusals(world, topic) + twice_only(world)


def _topic(world: World, what: str) -> str:
    wiring = world.wiring()
    stage = world.topology.stage(world.names.stage)
    if what == "changelog":
        return next(iter(wiring.task(stage, 0).changelogs.values())).topic
    return world.names.source if what in ("source", "past") else wiring.primary_topic(stage)


def _spoil(world: World, topic: str, what: str) -> bool:
    """Recreate the topic; for ``past``, remove input that was never read. False when there is none."""
    if what == "past":
        source = TopicPartition(topic, 0)
        committed = world.cluster.committed(world.names.app, [source], stable=False)
        end = world.cluster.ranges([source])[source].offset_next
        if source not in committed or committed[source].offset_next >= end:
            return False
        world.cluster.trim({source: end})
        return True
    info, config = world.cluster.describe([topic])[topic], world.cluster.topic_config(topic)
    policy = {"cleanup.policy": config["cleanup.policy"]}
    world.cluster.delete([topic])
    world.cluster.create([TopicSpec(topic, info.partitions, config=policy)])
    return True


def end_all(world: World) -> None:
    """Kill every worker, and wait until the cluster has noticed."""
    for machine in world.machines:
        if machine.worker is not None:
            world.bury(machine)
    world.cluster.end_sessions(world.names.app)
    world.clock.advance(ms=120_000)


def _refusals(world: World, topic: str) -> list[Finding]:
    for machine in world.machines:
        before = sum(world.notes.errors.values())
        machine.process = None
        for _ in range(_TURNS):
            world.turn(machine, _TURNS)
            if sum(world.notes.errors.values()) > before:
                break
        else:
            return [
                Finding("silent", "recreated", f"{machine.name} runs although {topic} is not what it was")
            ]
        if machine.worker is not None:
            world.bury(machine)
        world.clock.advance(ms=120_000)  # its sessions and transactions end
    return []
