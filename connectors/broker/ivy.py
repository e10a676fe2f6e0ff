"""Downloads Maven artifacts with Apache Ivy, which the pyspark wheel carries."""

from __future__ import annotations

import concurrent.futures
import importlib.util
import math
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from stateflow.connectors.broker.java import find_java
from stateflow.errors import SetupError, install_command

Coordinates = tuple[str, str, str]
LANES_MAX = 4  # Ivy downloads one file after the other; four side by side take a third of the time
ARTIFACTS_PER_LANE = (
    8  # so long as Java and Ivy take to start, two CPU seconds, a lane downloads about as many
)
TIMEOUT_SECONDS = 600
SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false" checksums=""/></resolvers>
</ivysettings>
"""
"""Maven Central, and of it the archives alone: what they are is locked by hash, so neither checksums nor the
descriptions of artifacts and their parents are asked for. That takes half the time.
"""
_JVM_ARGUMENTS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def retrieve(artifacts: Sequence[Coordinates], folder: Path) -> list[str]:
    """Download `artifacts` (group, artifact, version), and nothing they depend on, to `folder/jars`.

    What could not be had is simply not there; returns the lines in which Ivy says why. Files are not checked
    here.
    """
    from stateflow.connectors.broker.network import network_arguments  # brings TLS and a client of HTTP

    java = find_java()
    command = [str(java.executable), *_JVM_ARGUMENTS, *network_arguments(java), "-cp", ivy_classpath(), _MAIN]
    own_settings = folder / "settings.xml"
    own_settings.write_text(SETTINGS)
    command += ["-settings", os.environ.get("STATEFLOW_IVY_SETTINGS") or str(own_settings)]
    count = min(LANES_MAX, math.ceil(len(artifacts) / ARTIFACTS_PER_LANE))
    lanes = [artifacts[start::count] for start in range(count)]
    with concurrent.futures.ThreadPoolExecutor(count or 1) as pool:
        outputs = pool.map(lambda numbered: _run_lane(command, folder, *numbered), enumerate(lanes))
        return [line for output in outputs for line in _reasons(output)]


_MAIN = "org.apache.ivy.Main"


def ivy_classpath() -> str:
    """Ivy and its command line's jar, from the installed pyspark (which is looked up, not imported)."""
    spec = importlib.util.find_spec("pyspark")
    jars = Path(spec.origin).parent / "jars" if spec and spec.origin else None
    found = (
        [next(iter(sorted(jars.glob(pattern))), None) for pattern in ("ivy-*.jar", "commons-cli-*.jar")]
        if jars
        else []
    )
    paths = [str(path) for path in found if path is not None]
    if len(paths) != 2:
        raise SetupError(
            "The broker's jars are fetched with the Ivy that pyspark carries; pyspark is not installed.",
            action=f"Run `{install_command('broker')}`.",
        )
    return os.pathsep.join(paths)


def module_xml(artifacts: Sequence[Coordinates]) -> str:
    """An Ivy module that depends on exactly `artifacts`: their "master", or all of those that come undescribed."""
    from xml.sax.saxutils import quoteattr  # brings a client of HTTP

    rows = "".join(
        f"<dependency org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)}"
        ' transitive="false" conf="default->master(default)"/>'
        for group, artifact, version in artifacts
    )
    return (
        '<ivy-module version="2.0"><info organisation="stateflow" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{rows}</dependencies></ivy-module>"
    )


def _run_lane(command: Sequence[str], folder: Path, number: int, artifacts: Sequence[Coordinates]) -> str:
    module = folder / f"lane-{number}.xml"
    module.write_text(module_xml(artifacts))
    pattern = str(folder / "jars" / "[artifact]-[revision].[ext]")
    arguments = ["-cache", str(folder / f"ivy-{number}"), "-ivy", str(module), "-retrieve", pattern]
    try:
        done = subprocess.run(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"Exception: no answer within {TIMEOUT_SECONDS} s"
    return done.stdout


def _reasons(output: str) -> list[str]:
    lines = [line.strip() for line in output.splitlines()]
    return [line for line in lines if "Exception" in line or "not found" in line or "ERROR" in line]
