"""`stateflow doctor`: what this machine has, what is missing, and what to do about each."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import click

from stateflow.addresses import first_address
from stateflow.catalog.control import ControlTopic
from stateflow.cli.application import connected
from stateflow.cli.image_generations import image_generations, outdated_sentence
from stateflow.cli.options import app_id_option, json_option
from stateflow.cli.output import emit_json, human_bytes
from stateflow.cli.target import Chosen, chosen
from stateflow.cli.which_broker import settings_without_code
from stateflow.connectors.broker.distribution import KAFKA_JARS
from stateflow.connectors.broker.features import finalized_features
from stateflow.connectors.broker.java import find_java
from stateflow.connectors.broker.network import certificate_bundle
from stateflow.connectors.broker.places import cache_dir, user_state_dir
from stateflow.errors import (
    DISTRIBUTION,
    CatalogMissing,
    ConfigError,
    SetupError,
    StateflowError,
    install_command,
)
from stateflow.runtime.worker.own_topics import judged_topics, own_topics, settings_problems

DISK_FREE_BYTES_MIN = 2 << 30
PYTHON_MIN = (3, 11)
DOCKER_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class Finding:
    """One thing looked at. `ok` is None for what is missing and not needed; `action` says what to do."""

    name: str
    ok: bool | None
    detail: str
    action: str = ""


@click.command()
@click.argument("target", metavar="[APP]", required=False)
@app_id_option
@click.option("--brokers", envvar="STATEFLOW_BROKERS", help="Check this broker too, host:port[,host:port…].")
@json_option
@click.pass_context
def command(
    ctx: click.Context, target: str | None, app_id: str | None, brokers: str | None, as_json: bool
) -> None:
    """Check Python, packages, Java, Kafka's jars, Docker, disk space and the broker; with APP its images and the
    settings of its own topics, too.

    The exit code is 0 when nothing that is needed is missing.
    """
    application = None if target is None and app_id is None else chosen(target, app_id, brokers)
    findings = examine(brokers if application is None else application.options.brokers)
    if application is not None:
        unknown = None if app_id is None else _unknown(application)
        findings += [_images(application), _own_topics(application)] if unknown is None else [unknown]
    healthy = all(finding.ok is not False for finding in findings)
    if as_json:
        emit_json({"ok": healthy, "checks": [asdict(finding) for finding in findings]})
    else:
        _print(findings)
    if not healthy:
        ctx.exit(SetupError.exit_code)


def examine(brokers: str | None) -> list[Finding]:
    """Look at everything; never raises for what it finds."""
    checks: list[Callable[[], Finding]] = [
        _python,
        _packages,
        _native_core,
        _java,
        _jars,
        _certificates,
        _docker,
    ]
    disks = {"cache": cache_dir(), "state": user_state_dir()}
    found = [check() for check in checks] + [_disk(name, folder) for name, folder in disks.items()]
    return [*found, _broker(brokers)]


def _print(findings: Sequence[Finding]) -> None:
    marks = {True: ("ok", "green"), False: ("MISSING", "red"), None: ("-", "yellow")}
    for finding in findings:
        mark, colour = marks[finding.ok]
        click.echo(f"{click.style(f'{mark:<8}', fg=colour)}{finding.name:<14}{finding.detail}")
        if finding.action:
            click.echo(f"{'':<22}→ {finding.action}")


def _python() -> Finding:
    action = "" if sys.version_info >= PYTHON_MIN else "Run it with Python 3.11 or newer."
    return Finding("python", not action, f"{sys.version.split()[0]} ({sys.executable})", action)


def _packages() -> Finding:
    """What the package itself needs must be there; what its extras need may be."""
    needed, optional = _requirements()
    missing = [name for name in needed if _installed(name) is None]
    if missing:
        return Finding("packages", False, f"missing: {' '.join(missing)}", f"Run `{install_command()}`.")
    absent = [name for name in optional if _installed(name) is None]
    if absent:
        action = f"For Spark and the embedded broker: `{install_command('spark', 'broker')}`."
        return Finding("packages", None, f"not installed: {' '.join(absent)}", action)
    count = len(needed) + len(optional)
    return Finding("packages", True, f"{count} of {DISTRIBUTION} {version(DISTRIBUTION)} and its extras")


def _native_core() -> Finding:
    """Which of the two does the work, the core in C or plain Python, and why."""
    from stateflow.native.loading import native_state  # takes long, and is for those who ask

    try:
        state = native_state()
    except ConfigError as error:
        return Finding("native core", False, error.message, error.action)
    if state.in_use:
        return Finding("native core", True, state.why)
    action = "" if state.is_chosen else "For less CPU: `python -m stateflow.native` builds it."
    return Finding("native core", None, f"plain Python does its work: {state.why}", action)


def _requirements() -> tuple[list[str], list[str]]:
    """Names of the distributions that the installed package needs, and those of its extras."""
    needed: list[str] = []
    optional: list[str] = []
    for line in requires(DISTRIBUTION) or []:
        requirement, _, marker = line.partition(";")
        name = "".join(
            character if character.isalnum() or character in "-_." else " " for character in requirement
        )
        (optional if "extra" in marker else needed).append(name.split()[0])
    return needed, sorted(set(optional) - set(needed))


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _java() -> Finding:
    try:
        java = find_java()
    except SetupError as error:
        return Finding("java", False, error.message, error.action)
    return Finding("java", True, f"{java.major} ({java.executable}, by {java.source})")


def _jars() -> Finding:
    what = f"Kafka {KAFKA_JARS.version}, {len(KAFKA_JARS.jars)} jars, {human_bytes(KAFKA_JARS.size_bytes)}"
    if KAFKA_JARS.is_cached():
        return Finding("broker jars", True, f"{what}, in {KAFKA_JARS.folder}")
    return Finding("broker jars", None, f"{what}: not fetched yet", "The first `stateflow up` fetches them.")


def _certificates() -> Finding:
    bundle = certificate_bundle()
    return Finding("certificates", True, str(bundle) if bundle else "the runtime's own")


def _docker() -> Finding:
    action = "Only needed for docker-compose.yml and for tests with a broker in Docker."
    program = shutil.which("docker")
    if program is None:
        return Finding("docker", None, "not installed", action)
    try:
        done = subprocess.run(
            [program, "version", "--format", "{{.Server.Version}}"],
            capture_output=True,
            text=True,
            timeout=DOCKER_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Finding("docker", None, f"no answer within {DOCKER_TIMEOUT_SECONDS:.0f} s", action)
    if done.returncode != 0:
        return Finding("docker", None, "installed, but its daemon does not answer", action)
    return Finding("docker", True, done.stdout.strip())


def _disk(name: str, folder: Path) -> Finding:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".stateflow-doctor-", dir=existing):
            pass
    except OSError as error:
        why = f"{folder} cannot be {'written' if existing == folder else 'made'} ({error.strerror})"
        action = f"Set {_VARIABLE[name]} to a directory that this user may write."
        if error.errno != errno.ENOSPC:  # which the free space tells better
            return Finding(f"disk, {name}", False, why, action)
    free_bytes = shutil.disk_usage(existing).free
    enough = free_bytes >= DISK_FREE_BYTES_MIN
    action = (
        "" if enough else f"Free space up to {human_bytes(DISK_FREE_BYTES_MIN)}, or set {_VARIABLE[name]}."
    )
    return Finding(f"disk, {name}", enough, f"{human_bytes(free_bytes)} free for {folder}", action)


_VARIABLE = {"cache": "STATEFLOW_CACHE", "state": "STATEFLOW_HOME"}


def _unknown(application: Chosen) -> Finding | None:
    """What is told of an application that is named by an id which the cluster does not know."""
    try:
        with connected(application.options) as cluster:
            ControlTopic(cluster, application.app).load()
    except CatalogMissing as error:
        return Finding("application", False, error.message, error.action)
    except StateflowError:
        return None  # which is told of the images and topics
    return None


def _images(application: Chosen) -> Finding:
    """Images of an application that a repartition made useless are named; they do no harm."""
    try:
        with connected(application.options) as cluster:
            catalog = ControlTopic(cluster, application.app).load()
        found = image_generations(catalog, application.options)
    except StateflowError as error:
        return Finding("images", None, error.message, error.action)
    if found is None:
        return Finding("images", None, "no place is configured", "Needed for shorter restores: `images`.")
    if found.problem is not None:
        return Finding(
            "images", False, f"{found.location}: {found.problem}", "Check address and credentials."
        )
    if found.outdated:
        active = catalog.active.generation
        told = " ".join(outdated_sentence(of, active) for of in found.outdated)
        return Finding("images", None, told, "`stateflow checkpoint gc` removes them.")
    return Finding("images", True, f"{found.active.images} at {found.location}")


def _own_topics(application: Chosen) -> Finding:
    """Settings of the application's own topics under which records, state, or event time would be lost."""
    try:
        with connected(application.options) as cluster:
            catalog = ControlTopic(cluster, application.app).load()
            problems = settings_problems(cluster, judged_topics(catalog, own_topics(catalog, 1)))
    except StateflowError as error:
        return Finding("own topics", None, error.message, error.action)
    if problems:
        return Finding("own topics", False, "; ".join(problems.values()), "Set them back; see operating.md.")
    return Finding("own topics", True, "their settings lose nothing")


def _broker(brokers: str | None) -> Finding:
    """The broker that commands would use must answer; without one chosen, none need be there."""
    try:
        settings = settings_without_code("", brokers)
    except ConfigError as error:
        return Finding("broker", False, error.message, error.action)
    if settings.origins["brokers"] == "default":
        return Finding("broker", None, "none asked for, none running", "Start one with `stateflow up`.")
    wanted = settings.options.brokers
    try:
        features = finalized_features(*first_address(wanted))
    except OSError as error:
        return Finding("broker", False, f"{wanted} does not answer: {error}", "Check the address; is it up?")
    levels = " ".join(f"{name}={level}" for name, level in sorted(features.items()))
    if features.get("transaction.version", 0) < 1:
        action = "Exactly-once is safer on Kafka 4 with transaction.version=2."
        return Finding("broker", None, f"{wanted} answers; {levels or 'no feature levels'}", action)
    return Finding("broker", True, f"{wanted} answers; {levels}")
