"""A handle belongs to the record at work: used at another time, or assigned to, it is an error and no state changes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import GraphError, ProcessingError
from stateflow.testing import TestDriver

kept: list[Any] = []


class Keeping(sf.Operator[str, int, int]):
    """Keeps itself and its context for later, as it should not."""

    value: sf.Value[int] = sf.state(default=0)
    text: sf.Value[str] = sf.state(default="")
    counter: sf.Counter = sf.state()
    listed: sf.ListOf[int] = sf.state()
    tags: sf.SetOf[int] = sf.state()
    scores: sf.MapOf[str, int] = sf.state()
    nested: sf.MapOf[str, sf.MapOf[str, int]] = sf.state()
    versioned: sf.Versioned[int] = sf.state(max_versions=3)

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        kept[:] = [self, ctx]
        self.seen = value  # what is no state may be set
        self.value.set(value)
        ctx.timer("later", after=timedelta(seconds=1))

    def on_timer(self, name: str, ctx: sf.Context[int]) -> None:
        self.value.set(-1)


def _driver(owner: type[sf.Operator[Any, Any, Any]]) -> tuple[TestDriver, sf.Topic[str, int]]:
    app = sf.App("held")
    topic = app.topic("in", key=str, value=int)
    app.stream(topic, co_partitioned=True).process(owner, name="op")
    return TestDriver(app, partitions=1), topic


USES = {
    "value.set": lambda op: op.value.set(77),
    "value.get": lambda op: op.value.get(),
    "text.set": lambda op: op.text.set("x"),
    "counter.add": lambda op: op.counter.add(1),
    "listed.append": lambda op: op.listed.append(1),
    "tags.add": lambda op: op.tags.add(1),
    "scores.put": lambda op: op.scores.put("a", 1),
    "scores.items": lambda op: op.scores.items(),
    "nested.put": lambda op: op.nested["a"].put("b", 1),
    "versioned.set": lambda op: op.versioned.set(1, at=0),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("after_timer", [False, True])
def test_a_handle_used_between_records_is_refused(use: str, after_timer: bool) -> None:
    driver, topic = _driver(Keeping)
    driver.send(topic, 5, key="a")
    if after_timer:
        driver.advance_event_time(driver.clock.now_ms() + 60_000)
    operator, ctx = kept
    with pytest.raises(GraphError, match="while no record is processed"):
        USES[use](operator)
    with pytest.raises(GraphError, match="while no record is processed"):
        ctx.timer("x", after=timedelta(seconds=1))
    assert operator.seen == 5
    driver.send(topic, 6, key="b")
    assert driver.state("op", "value", key="a") == (-1 if after_timer else 5)
    driver.stop()


def test_assigning_to_a_state_is_refused() -> None:
    class Assigning(sf.Operator[str, int, int]):
        value: sf.Value[int] = sf.state(default=0)

        def on_record(self, value: int, ctx: sf.Context[int]) -> None:
            self.value = value  # type: ignore[assignment]

    driver, topic = _driver(Assigning)
    with pytest.raises((GraphError, ProcessingError), match=r"Assigning\.value was assigned to"):
        driver.send(topic, 5, key="a")
