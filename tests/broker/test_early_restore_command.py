"""`stateflow restore --serve-early` against a real broker, and `stateflow state get` beside it."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from stateflow.errors import ConfigError
from stateflow.log.kafka import KafkaCluster
from stateflow.query.early_serving import FILE
from tests.broker.catalog_site import KEYS, PARTITIONS, Application, at, stateflow
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

HOLD = "early.after_note:1:stop"
"""The restore stops itself once its first range is on disk."""


@pytest.fixture(scope="module")
def application(cluster: KafkaCluster) -> Application:
    return Application(cluster)


def test_the_result_is_that_of_a_restore_in_order_and_keys_are_told(
    cluster: KafkaCluster, application: Application, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    live = [key for key in KEYS if key in application.truth["counts"]][:3]
    gone = next(key for key in KEYS if key not in application.truth["counts"])
    asked = [part for key in (*live, gone) for part in ("--key", f"counts={key}")]
    where = at(cluster, application, "--to", str(tmp_path / "early"))
    found = stateflow(
        capfd, "restore", *where, "--serve-early", "--workers", "2", *asked, "--key", f"seen={KEYS[9]}"
    )
    answers = found["answers"]
    assert isinstance(answers, list)
    told = {(a["store"], a["key"]): [row["value"] for row in a["rows"]] for a in answers}
    assert told == {
        **{("counts", key): [application.truth["counts"][key]] for key in live},
        ("counts", gone): [],
        ("seen", KEYS[9]): [{"round": round_} for round_ in range(5)],
    }
    assert {a["source"] for a in answers if a["store"] == "counts"} == {"range"}
    assert found["records"] == 5 * (3 * len(KEYS) + PARTITIONS)
    stateflow(capfd, "restore", *at(cluster, application, "--to", str(tmp_path / "in-order")))
    assert contents(application, tmp_path / "early") == contents(application, tmp_path / "in-order")
    assert not (tmp_path / "early" / application.id / FILE).exists()


def contents(application: Application, state_dir: Path) -> list[object]:
    found: list[object] = []
    for partition in range(PARTITIONS):
        stores = application.opened(state_dir, partition)
        found += [(name, stores.position(name), [*stores.reader(name).scan()]) for name in stores.stores]
        stores.close()
    return found


def test_a_dry_run_says_how_much_is_read_at_most_for_a_key(
    cluster: KafkaCluster, application: Application, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from stateflow.cli.main import run

    where = at(cluster, application, "--to", str(tmp_path / "state"))
    assert run(["restore", *where, "--serve-early", "--dry-run", "--key", f"counts={KEYS[0]}"]) == 0
    last = capfd.readouterr().out.splitlines()[-1].split()
    assert last[:3] == ["counts", KEYS[0], f"by-{application.partition(KEYS[0])}"]
    assert int(last[3]) > 0
    assert not (tmp_path / "state").exists()
    refused = stateflow(capfd, "restore", *where, "--key", "counts=a", exit_code=ConfigError.exit_code)
    assert "--serve-early" in str(refused["action"])


def test_state_get_asks_the_restore_that_is_under_way(
    cluster: KafkaCluster, application: Application, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It stands still with one range read, is asked, goes on, is killed, and is begun again."""
    key = next(key for key in KEYS if key in application.truth["counts"])
    command = [sys.executable, "-m", "stateflow.cli", "restore", "--serve-early", "--workers", "1", "--json"]
    command += at(cluster, application, "--to", str(tmp_path))
    held = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "STATEFLOW_FAILPOINTS": HOLD})
    file = tmp_path / application.id / FILE
    try:
        wait_until(lambda: any(tmp_path.rglob("ranges/*.json")), "the first range is read", seconds=60)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        place = json.loads(file.read_text())
        with subprocess.Popen(
            [
                *(sys.executable, "-m", "stateflow.cli", "state", "get", "counts", key, "--json"),
                *at(cluster, application, "--state-dir", str(tmp_path)),
            ],
            stdout=subprocess.PIPE,
        ) as asking:
            with pytest.raises(subprocess.TimeoutExpired):  # nobody can answer while the restore stands still
                asking.wait(3)
            os.kill(held.pid, signal.SIGCONT)
            out, _ = asking.communicate(timeout=60)
        found = json.loads(out)
        assert [row["value"] for row in found["rows"]] == [application.truth["counts"][key]]
        assert held.wait(60) == 0
        assert not file.exists()
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(place["url"], timeout=5)
    finally:
        held.kill()
        held.wait()
        if held.stdout is not None:
            held.stdout.close()


def test_one_that_was_killed_leaves_nothing_that_misleads(
    cluster: KafkaCluster, application: Application, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-m", "stateflow.cli", "restore", "--serve-early", "--workers", "1", "--json"]
    command += at(cluster, application, "--to", str(tmp_path))
    killed = subprocess.run(
        command,
        env={**os.environ, "STATEFLOW_FAILPOINTS": "early.after_note:3:kill"},
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    file = tmp_path / application.id / FILE
    assert file.exists(), "it had no time to remove it"
    where = at(cluster, application, "--state-dir", str(tmp_path))
    assert stateflow(capfd, "state", "get", "counts", KEYS[3], *where)["rows"] == [], "nothing is restored"
    assert len([*tmp_path.rglob("ranges/*.json")]) == 3
    found = stateflow(capfd, "restore", *at(cluster, application, "--to", str(tmp_path)), "--serve-early")
    assert found["tasks"] == PARTITIONS
    assert application.counts(tmp_path) == application.truth["counts"]
