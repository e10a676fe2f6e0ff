"""The study of recovery with a real worker process: it loses its disk amid a feed, and every count is right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stateflow.lab.recovery.failures import MODES, modes_of, run_failure, run_overhead
from stateflow.lab.recovery.word_site import Keeping
from stateflow.log.kafka import connect
from stateflow.testing.broker import TestBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.mark.parametrize("mode", ["image + tail", "upstream replay", "source replay"])
def test_a_lost_worker_comes_back_with_every_count(broker: TestBroker, tmp_path: Path, mode: str) -> None:
    (failure,) = [each for each in modes_of(rate=100, words=300, before_seconds=4.0) if each.mode == mode]
    if failure.keeping.image_seconds is not None:
        failure = replace(failure, keeping=Keeping(image_seconds=1.0))
    cluster = connect(broker.bootstrap)
    result = run_failure(failure, cluster, broker.bootstrap, tmp_path)
    cluster.close()
    assert result.different == 0
    assert result.lines > 300
    assert 0 < result.running_seconds <= result.recovered_seconds
    assert min(at for at, _ in result.behind) < 0 < max(at for at, _ in result.behind)
    assert any(tmp_path.glob("*-images/**/*")) == (failure.keeping.image_seconds is not None)


def test_a_backlog_is_counted_rightly(broker: TestBroker, tmp_path: Path) -> None:
    cluster = connect(broker.bootstrap)
    found = run_overhead("changelog", MODES["changelog"], 2_000, 100, cluster, broker.bootstrap, tmp_path)
    cluster.close()
    assert found.different == 0
    assert found.words_per_second > 0
