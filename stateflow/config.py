"""All settings of an application, and where each comes from.

Later ones win: the default, what the code says, the file (``stateflow.toml`` here, or the one that
``STATEFLOW_CONFIG`` names), the environment (``STATEFLOW_<SETTING>``), the command line. So code carries
what suits a laptop, and whoever operates it decides without touching code.

In the file a setting stands at the top, or in ``[app.<id>]`` for one application; ``[client]`` holds
settings of the Kafka client, handed on untouched. In the environment ``STATEFLOW_CLIENT__SASL_PASSWORD`` is
the client's ``sasl.password``.
"""

from __future__ import annotations

import os
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal

import msgspec

from stateflow.addresses import check_addresses
from stateflow.errors import ConfigError
from stateflow.memory import MEMORY_BYTES, MemoryShares, memory_shares
from stateflow.redaction import Address, redacted, redacted_text
from stateflow.setting_bounds import (
    ByteCount,
    CopyCount,
    Count,
    DirtyBytes,
    MemoryLimit,
    PartitionCount,
    Port,
    ReplicaCount,
    Seconds,
    Text,
    ThreadCount,
    WriterCount,
    advice,
)
from stateflow.setting_names import check_names, refuse_misspelled

FILE_NAME = "stateflow.toml"
FILE_VARIABLE = "STATEFLOW_CONFIG"
_PREFIX = "STATEFLOW_"
_CLIENT = "client"
_BROKERS = "bootstrap.servers"
_CLIENT_PREFIX = f"{_PREFIX}CLIENT__"

Guarantee = Literal["at-least-once", "exactly-once"]
CommitMode = Literal["standard", "paranoid"]
ImageMode = Literal["full", "delta", "continuous"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker runs: the settings of an application that concern each of its workers."""

    state_dir: Path = Path("./state")
    commit_interval_seconds: Seconds = 1.0
    """Longest time between two commits of a task: under exactly-once, how late an output can appear."""
    commit_interval_min_seconds: Seconds | None = None
    """Under exactly-once a worker that has time left commits a task that has sent something so soon after its last
    commit; None is a twentieth of ``commit_interval_seconds``, or 0.05 s if that is more. With as much as that setting
    it is kept as it is. Early commits take at most a tenth of a core and half of the time without input; if this
    is set, half of a core and four fifths of that time. Not with ``paranoid``."""
    commit_mode: CommitMode = "standard"
    """Exactly-once: ``paranoid`` gives each transaction a producer epoch of its own (``docs/exactly-once.md``)."""
    shared_writers: WriterCount = 0
    """So many Kafka producers per worker are shared by its tasks, in place of one per task; 0 keeps one per task. Not
    with ``paranoid``. To be set for some hundred tasks in a process: see ``docs/operating.md``."""
    memory_bytes: MemoryLimit = MEMORY_BYTES
    """What one worker process may take in memory: caches, queues, changed state and restores have their shares of it
    (``docs/operating.md``)."""
    dirty_bytes_max: DirtyBytes | None = None
    """A task with more changed keys and values than this commits early; None leaves it to the share of
    ``memory_bytes`` that all tasks have together."""
    poll_records_max: Count = 10_000
    restore_threads: ThreadCount = 2
    """Tasks of one worker that are restored at the same time, beside the poll thread."""
    idle_seconds: Seconds = 5.0
    """An input that is read to its end and silent for so long no longer holds back event time behind it."""
    flush_interval_seconds: Seconds = 30.0
    """How often local state is flushed: what a crash of the machine has to replay."""
    purge_interval_seconds: Seconds = 30.0
    """How often consumed records are dropped from repartition topics."""
    read_cache_bytes: ByteCount | None = None
    """Per task, shared by its stores; None divides a share of ``memory_bytes`` among the tasks that run."""
    revoke_timeout_seconds: Seconds = 30.0
    """How long a starting task may take to notice that its partition was taken away."""
    start_from: Literal["earliest", "latest"] = "earliest"
    """Where a source without a committed offset is first read."""
    images: Text | None = None
    """Where images of local state are kept (a directory, ``s3://bucket/prefix`` …); never with credentials in it."""
    savepoints: str = "./savepoints"
    """Where savepoints may be kept, besides ``images``: locations, divided by commas, each with all that is below it.
    Workers copy state to no other place, whoever asks for it.
    """
    image_interval_seconds: Seconds = 600.0
    """Age at which a task's newest image is followed by another, where ``images`` says where they are kept."""
    images_kept: Count = 3
    """Images kept of each task; a worker that made one removes older ones."""
    restore_within_seconds: Seconds | None = None
    """Keep all changelogs restorable within this time by tuning how Kafka compacts them (``docs/compaction.md``);
    None leaves their settings alone.
    """
    restore_workers: Count = 1
    """Workers that would restore at the same time, for ``restore_within_seconds``."""
    image_mode: ImageMode = "delta"
    """``delta`` sends what the image before does not have, ``full`` all files for each image; with ``continuous``
    workers make none, and the changelog is the only copy."""
    trim: bool = False
    """Whether changelogs are deleted before images that were read back: restore then needs an image."""
    images_restorable: Count = 2
    """With ``trim``: the newest images of a task from each of which a restore must be able to begin."""
    standby_replicas: CopyCount = 0
    """Copies of each task's state that other workers keep up to date; 0 keeps none."""
    standby_lag_acceptable: Count = 10_000
    """A copy at most so many changelog offsets behind counts as caught up: a task may move to it."""
    placement_delay_seconds: Seconds = 1.0
    """With standby copies: how long workers wait for others to join before the first tasks are assigned."""
    state_cleanup_seconds: Seconds = 600.0
    """With standby copies: how long state stays on a disk where its task is neither run nor copied any more."""
    metrics_port: Port = 0
    """Where Prometheus finds this worker's metrics (``http://127.0.0.1:PORT/metrics``); 0 serves none. Each worker of
    ``run --workers N`` takes the next port."""
    metrics_host: Text = "127.0.0.1"
    """The address that the metrics are served at; any but this machine's own wants a ``metrics_token``."""
    metrics_token: str | None = field(default=None, repr=False)
    """What a scrape has to show (``Authorization: Bearer TOKEN``)."""
    member: Text | None = None
    """Name of this worker for static membership; None joins as an ordinary member."""

    @property
    def places(self) -> tuple[str, ...]:
        """The locations of state outside ``state_dir``: those of savepoints and images."""
        named = [place.strip() for place in self.savepoints.split(",")]
        return tuple(place for place in (*named, self.images) if place)

    @property
    def trim_to(self) -> str | None:
        """Where the images are that changelogs are deleted before; None when they are not."""
        return self.images if self.trim else None

    @property
    def memory(self) -> MemoryShares:
        """How ``memory_bytes`` is divided."""
        return memory_shares(self.memory_bytes, standby=self.standby_replicas > 0)

    @property
    def task_dirty_bytes_max(self) -> int:
        """Changed keys and values with which one task commits early, whatever the others hold."""
        return self.dirty_bytes_max or self.memory.dirty_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AppOptions(WorkerOptions):
    """How an application runs, apart from what it computes."""

    brokers: Text = "localhost:9092"
    """Bootstrap servers, ``host:port[,…]``."""
    guarantee: Guarantee = "exactly-once"
    partitions: PartitionCount = 4
    """Partitions of the re-keyed stages in the first generation; `stateflow scale` changes it later."""
    replication: ReplicaCount = 1
    """Replication factor of topics that the application creates."""
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Settings of the Kafka client (``security.protocol``, ``sasl.password`` …)."""

    def __post_init__(self) -> None:
        for name, hint in _hints().items():
            object.__setattr__(self, name, _converted(name, getattr(self, name), hint, "code"))


def check_images(options: WorkerOptions) -> None:
    """Raise ``ConfigError`` when the settings about images contradict each other."""
    if not options.trim:
        return
    if options.images is None or options.image_mode == "continuous":
        raise ConfigError(
            "The setting 'trim' deletes changelogs before images, and no images are made.",
            action="Say where they are kept with 'images', and let 'image_mode' be delta or full; or leave 'trim' out.",
            setting="trim",
        )
    if options.images_restorable > options.images_kept:
        raise ConfigError(
            f"{options.images_restorable} images must be restorable, and only {options.images_kept} are kept.",
            action="Raise 'images_kept', or lower 'images_restorable'.",
            setting="images_restorable",
        )
    if Address.of(options.images).has_credentials:
        raise ConfigError(
            "With 'trim' the place of the images is written down in the catalog, and this one has credentials in it.",
            action="Give credentials in the environment, as the object store documents it.",
            setting="images",
        )


def check_metrics(options: WorkerOptions) -> None:
    """Raise ``ConfigError`` when strangers could read the metrics."""
    host = options.metrics_host
    if options.metrics_port == 0 or options.metrics_token or host == "localhost":
        return
    try:
        is_loopback = ip_address(host).is_loopback
    except ValueError:  # a name: whoever it stands for
        is_loopback = False
    if not is_loopback:
        raise ConfigError(
            f"Metrics at {host} could be read by anybody who reaches this machine.",
            action="set metrics_token, which scrapes must show then, or leave metrics_host at 127.0.0.1.",
            setting="metrics_host",
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as a person may see it: secrets are not shown."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class Settings:
    """The options in force and where each comes from; a client setting's name is ``client.<name>``."""

    options: AppOptions
    origins: Mapping[str, str]

    def defaulting(self, name: str, value: Any, origin: str) -> Settings:
        """The same with another value for a setting that still has its default."""
        if self.origins[name] != "default":
            return self
        return Settings(replace(self.options, **{name: value}), {**self.origins, name: origin})

    def shown(self) -> list[Setting]:
        """Every setting with its origin, secrets redacted; the shares of memory; whether the native core is in use."""
        plain = [
            Setting(name, redacted(name, getattr(self.options, name)), self.origins[name])
            for name in _hints()
            if name != _CLIENT
        ]
        client = [
            Setting(f"client.{name}", redacted(name, value), self.origins[f"client.{name}"])
            for name, value in sorted(self.options.client.items())
        ]
        shares = [
            Setting(f"memory_bytes.{name.removesuffix('_bytes')}", str(size_bytes), "memory_bytes")
            for name, size_bytes in self.options.memory.shown()
        ]
        from stateflow.native.loading import native_state  # takes long, and is for those who ask

        state = native_state()
        core = Setting("native_core", "in use" if state.in_use else "not in use", state.why)
        return [*plain, *shares, core, *client]


def resolve(
    app: str,
    code: AppOptions,
    command_line: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Bring all sources of settings together.

    Raises ``ConfigError`` for an unknown setting, a value that does not fit, or a file that cannot be read.
    """
    environment = os.environ if environment is None else environment
    default = AppOptions()
    options, origins = code, dict.fromkeys(_hints(), "default")
    for name in _hints():
        if getattr(code, name) != getattr(default, name):
            origins[name] = "code"
    origins.update({f"client.{name}": "code" for name in code.client})
    for origin, values, client in (
        *_from_file(app, environment),
        *_from_environment(environment),
        ("command line", dict(command_line or {}), {}),
    ):
        options = _applied(options, origin, values, client)
        origins.update(dict.fromkeys(values, origin))
        origins.update({f"client.{name}": origin for name in client})
    check_addresses(options.brokers, origins["brokers"])
    check_images(options)
    check_metrics(options)
    return Settings(options, origins)


_Layer = tuple[str, dict[str, Any], dict[str, Any]]
"""Where from, settings, settings of the client."""


def _from_file(app: str, environment: Mapping[str, str]) -> list[_Layer]:
    named = environment.get(FILE_VARIABLE)
    path = Path(named or FILE_NAME)
    if not named and not path.is_file():
        return []
    import tomllib  # here, like difflib below: few processes need them, and all would wait for them

    try:
        content = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as cause:
        raise ConfigError(
            f"The settings file {path} cannot be read: {cause}.",
            action=f"Correct it, or unset {FILE_VARIABLE}." if named else "Correct or remove it.",
        ) from cause
    own = _table(_table(content, "app", f"file {path}"), app, f"file {path} [app]")
    layers = []
    for origin, table in ((f"file {path}", content), (f"file {path} [app.{app}]", own)):
        client = _dotted(_table(table, _CLIENT, origin))
        layers.append((origin, table, client))
    return layers


def _table(content: dict[str, Any], name: str, origin: str) -> dict[str, Any]:
    """Take a table out of a table; an empty one when it is not there."""
    found = content.pop(name, {})
    if not isinstance(found, dict):
        raise ConfigError(
            f"{name!r} is no table ({origin}).", action=f"Write [{name}] above what belongs to it."
        )
    return found


def _dotted(table: Mapping[str, Any]) -> dict[str, Any]:
    """A client's settings by their full names: TOML reads an unquoted ``sasl.password`` as two nested tables."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": leaf for inner, leaf in _dotted(value).items()}
        else:
            flat[name] = value
    return flat


def _from_environment(environment: Mapping[str, str]) -> list[_Layer]:
    layers: list[_Layer] = []
    known = {f"{_PREFIX}{name.upper()}": name for name in _hints() if name != _CLIENT}
    for variable in sorted(environment):
        if variable in known:
            layers.append((f"environment {variable}", {known[variable]: environment[variable]}, {}))
        elif variable.startswith(_CLIENT_PREFIX):
            name = variable.removeprefix(_CLIENT_PREFIX).lower().replace("_", ".")
            layers.append((f"environment {variable}", {}, {name: environment[variable]}))
        elif variable.startswith(_PREFIX):
            refuse_misspelled(variable, known)
    return layers


def _applied(
    options: AppOptions, origin: str, values: Mapping[str, Any], client: Mapping[str, Any]
) -> AppOptions:
    hints = _hints()
    check_names(values, hints, origin)
    if _BROKERS in client:
        raise ConfigError(
            f"The client setting {_BROKERS!r} is not where brokers are named ({origin}).",
            action="name them by the setting `brokers`: above [client] in the file, STATEFLOW_BROKERS, or --brokers.",
            setting=_BROKERS,
        )
    converted = {name: _converted(name, value, hints[name], origin) for name, value in values.items()}
    merged = {**options.client, **converted.pop(_CLIENT, {}), **client}
    return replace(options, **converted, client=merged)


def _converted(name: str, value: object, hint: Any, origin: str) -> Any:
    try:
        if hint is Path:
            return _path(value)
        return msgspec.convert(value, hint, strict=False)
    except msgspec.ValidationError as cause:
        shown = "its value" if name == _CLIENT else redacted_text(repr(value))
        raise ConfigError(
            f"The setting {name!r} cannot be {shown} ({origin}): {redacted_text(str(cause))}.",
            action=f"{advice(hint)}; `stateflow config show --origin` lists all settings.",
            setting=name,
        ) from cause


def _path(value: object) -> Path:
    """Also of a number in the file; an empty one would be the current directory, which nobody means by it."""
    text = str(value)
    if not text or "\0" in text:
        raise msgspec.ValidationError("Expected a path")
    return Path(text)


@cache
def _hints() -> Mapping[str, Any]:
    hints = typing.get_type_hints(AppOptions, include_extras=True)
    return {field.name: hints[field.name] for field in fields(AppOptions)}
