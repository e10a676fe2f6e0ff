"""The application: its topics, its graph and its settings. The same object runs on every runner."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, overload

from stateflow.codec.base import Codec
from stateflow.codec.infer import codec_for, codec_or_none
from stateflow.codec.scalar import Bytes, String
from stateflow.config import AppOptions, CommitMode, Guarantee, ImageMode, Settings, resolve
from stateflow.errors import ConfigError, GraphError, StateflowError
from stateflow.operators.classes.operator import Operator, OperatorClass
from stateflow.operators.dsl.app_verbs import AppVerbs
from stateflow.operators.dsl.ordering_verbs import Order, order_between
from stateflow.operators.dsl.stream import Stream
from stateflow.operators.stateful.ports import several_inputs_node
from stateflow.operators.steps.error_policy import Fail, LatePolicy, Policy, Skip
from stateflow.operators.steps.user_traceback import user_traceback
from stateflow.operators.topics.topic_options import Topic as Topic
from stateflow.operators.topology.describe import describe, describe_text
from stateflow.operators.topology.graph import Graph, Keyed, check_name
from stateflow.operators.topology.stages import split_into_stages
from stateflow.operators.topology.topology import Topology
from stateflow.operators.topology.verbs import source_node
from stateflow.setting_names import check_names

K = TypeVar("K")
V = TypeVar("V")
OperatorType = TypeVar("OperatorType", bound=type[Operator[Any, Any, Any]])

FAIL = Fail()
SKIP = Skip()


class App(AppVerbs):
    """An application by its id, which names its consumer group and the topics it owns.

    What is passed here (single settings, or ``options`` for all of them) is what suits development; file,
    environment and command line override it (``stateflow.config``). Raises ``GraphError`` for an id that
    cannot be part of a topic's name, ``ConfigError`` for a setting that does not fit.
    """

    def __init__(
        self,
        id: str,
        *,
        brokers: str | None = None,
        partitions: int | None = None,
        state_dir: str | Path | None = None,
        guarantee: Guarantee | None = None,
        commit_mode: CommitMode | None = None,
        restore_within_seconds: float | None = None,
        images: str | None = None,
        image_mode: ImageMode | None = None,
        trim: bool | None = None,
        standby_replicas: int | None = None,
        options: AppOptions | None = None,
    ) -> None:
        self.id = id
        self._graph = Graph(id)
        self._topics: dict[str, Topic[Any, Any]] = {}
        given = {
            "brokers": brokers,
            "partitions": partitions,
            "state_dir": state_dir,
            "guarantee": guarantee,
            "commit_mode": commit_mode,
            "restore_within_seconds": restore_within_seconds,
            "images": images,
            "image_mode": image_mode,
            "trim": trim,
            "standby_replicas": standby_replicas,
        }
        self._code = _with(
            options or AppOptions(), {name: it for name, it in given.items() if it is not None}
        )
        self._command_line: dict[str, Any] = {}
        self._refinements: list[Callable[[Settings], Settings]] = []
        self._settings: Settings | None = None

    # --- settings ---------------------------------------------------------------------------------------

    @property
    def options(self) -> AppOptions:
        """The settings in force."""
        return self.settings.options

    @property
    def settings(self) -> Settings:
        """The settings in force with the origin of each; file and environment are read once."""
        if self._settings is None:
            settings = resolve(self.id, self._code, self._command_line)
            for refine in self._refinements:
                settings = refine(settings)
            self._settings = settings
        return self._settings

    def configure(self, **settings: Any) -> None:
        """Override settings, as the command line does: these win; None leaves one as it is.

        Raises ``ConfigError`` for a name that is no setting.
        """
        check_names(settings, (each.name for each in fields(AppOptions)), "App.configure")
        self._command_line |= {name: value for name, value in settings.items() if value is not None}
        self._settings = None

    def refine(self, function: Callable[[Settings], Settings]) -> None:
        """Have ``function`` fill in, with their origin, settings that nobody has made."""
        self._refinements.append(function)
        self._settings = None

    # --- the graph --------------------------------------------------------------------------------------

    @overload
    def topic(
        self,
        name: str,
        *,
        key: Codec[K] | type[K],
        value: Codec[V] | type[V],
        partitions: int | None = None,
        timestamp: Callable[[V], int | datetime] | None = None,
        max_ahead: timedelta | None = None,
    ) -> Topic[K, V]: ...
    @overload
    def topic(
        self,
        name: str,
        *,
        value: Codec[V] | type[V],
        partitions: int | None = None,
        timestamp: Callable[[V], int | datetime] | None = None,
        max_ahead: timedelta | None = None,
    ) -> Topic[bytes, V]: ...
    @overload
    def topic(
        self,
        name: str,
        *,
        key: Codec[K] | type[K],
        partitions: int | None = None,
        timestamp: Callable[[bytes], int | datetime] | None = None,
        max_ahead: timedelta | None = None,
    ) -> Topic[K, bytes]: ...
    @overload
    def topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        timestamp: Callable[[bytes], int | datetime] | None = None,
        max_ahead: timedelta | None = None,
    ) -> Topic[bytes, bytes]: ...
    def topic(
        self,
        name: str,
        *,
        key: Codec[Any] | type[Any] = Bytes,
        value: Codec[Any] | type[Any] = Bytes,
        partitions: int | None = None,
        timestamp: Callable[[Any], int | datetime] | None = None,
        max_ahead: timedelta | None = None,
    ) -> Topic[Any, Any]:
        """Declare a topic that other programs write or read.

        ``key`` and ``value`` are codecs, or types (str, int, a dataclass as JSON …). ``timestamp`` takes
        the event time out of a value: ms since 1970 UTC or a datetime with a time zone. ``max_ahead`` refuses
        records whose event time is further ahead: of the record's own timestamp where ``timestamp`` is
        given, else of the clock; ``stream(late=…)`` says what becomes of them. ``partitions`` is used only
        when `stateflow topics apply` creates it. Raises ``GraphError`` when the topic was declared
        differently before.
        """
        keys, values = codec_for(key), codec_for(value)
        topic = Topic(check_name("topic", name), keys, values, partitions, timestamp, max_ahead)
        if self._topics.setdefault(name, topic) != topic:
            raise GraphError(
                f"The topic {name!r} is declared twice, differently.",
                action="Declare it once and use the result.",
            )
        return topic

    @property
    def topics(self) -> tuple[Topic[Any, Any], ...]:
        """Every topic declared."""
        return tuple(self._topics.values())

    def stream(
        self,
        *topics: Topic[K, V],
        co_partitioned: bool = False,
        on_error: Policy = FAIL,
        late: LatePolicy = SKIP,
    ) -> Stream[K, V]:
        """The records of a topic, or of several that hold the same.

        Several topics must have equally many partitions. ``co_partitioned`` says that producers choose the
        partition by the key as Kafka's default partitioner does (murmur2), so that state may be kept by it
        without a re-key stage; such state follows the producers' partition count and cannot be
        repartitioned. ``on_error`` is for records whose key or value cannot be decoded, ``late`` for those that are
        ahead of time by more than the topic's ``max_ahead``; they are always counted (``ahead_records_total``).
        """
        if not topics:
            raise GraphError("A stream reads no topic.", action="Name one: app.stream(topic).")
        keyed: Keyed = "routing" if co_partitioned else "no"
        return Stream(self._graph, source_node(self._graph, topics, keyed, on_error, late))

    def operator(
        self,
        name: str,
        *,
        source: Topic[Any, V] | Stream[Any, V] | None = None,
        inputs: Mapping[str, Topic[Any, Any] | Stream[Any, Any]] | None = None,
        key: Callable[[V], Any] | str | None = None,
        sink: Topic[Any, Any] | None = None,
        order: Order = "arrival",
        tie_break: Callable[[Any], Any] | None = None,
        on_error: Policy = FAIL,
    ) -> Callable[[OperatorType], OperatorType]:
        """Decorate an operator class: records of ``source``, re-keyed by ``key``, through it, to ``sink``.

        The re-key step has the operator's name. Without ``key`` the source must be a stream that is keyed
        already.

        With ``inputs`` in the place of ``source`` it reads several, each given by the name of the method that is called
        for its records: ``inputs={"on_order": orders, "on_payment": payments}``. They have one type of key; one that is
        not partitioned by the application goes through the re-key step ``<name>-<method>``, under the key it has.
        ``process`` does the same where a type checker shall see what fits.

        With ``order="event-time"`` a key's records come in that order, over all inputs; ``tie_break``, a function of a
        value of any input, and then the order of ``inputs`` say which of one time comes first.
        """
        if (source is None) == (inputs is None) or (inputs is not None and key is not None):
            raise GraphError(
                f"The operator {name!r} is to read {'both' if source else 'neither'} a source and inputs."
                if key is None
                else f"The operator {name!r} has inputs and one key for them.",
                action="Give it source=… (and key=…), or inputs={method: stream, …} of streams that have their keys.",
            )

        def add_inputs(owner: OperatorType) -> OperatorType:
            nodes = {
                handler: (it if isinstance(it, Stream) else self.stream(it, on_error=on_error)).node
                for handler, it in (inputs or {}).items()
            }
            tie_breaks = dict.fromkeys(nodes, tie_break)
            between = order_between(self._graph, name, order, tie_breaks, on_error)
            several = several_inputs_node(self._graph, owner, nodes, name, on_error, between)
            if sink is not None:
                Stream[Any, Any](self._graph, several).to(sink, on_error=on_error)
            return owner

        def add(owner: OperatorType) -> OperatorType:
            assert source is not None, "checked above"
            declared = OperatorClass(name, owner)
            stream = source if isinstance(source, Stream) else self.stream(source, on_error=on_error)
            if key is not None:
                codecs = (
                    codec_or_none(declared.key_type, "msgpack"),
                    codec_or_none(declared.value_type, "msgpack"),
                )
                value = None if stream.has_value_codec else codecs[1]
                stream = stream.key_by(
                    key, name=name, key=codecs[0] or String, value=value, on_error=on_error
                )
            out: Stream[Any, Any] = stream.process(
                owner, name=name, order=order, tie_break=tie_break, on_error=on_error
            )
            if sink is not None:
                out.to(sink, on_error=on_error)
            return owner

        return add if inputs is None else add_inputs

    def topology(self) -> Topology:
        """The graph, checked and split into stages; raises ``GraphError`` that says what to do."""
        return split_into_stages(self._graph)

    def describe(self) -> dict[str, Any]:
        """The stages with their steps, stores and topics, as JSON-able data."""
        return describe(self.topology())

    def describe_text(self) -> str:
        """The same for a person to read."""
        return describe_text(self.describe())

    # --- running ----------------------------------------------------------------------------------------

    def main(self) -> None:
        """Run the command line on this application (``python app.py run …``) and end with its exit code.

        The commands are those of ``stateflow``, with the application already named to those that take one.
        """
        script = importlib.import_module("stateflow.cli.script")  # by name: nothing here depends on the CLI
        sys.exit(script.run(self, self._target(), sys.argv[1:] or ["--help"]))

    def _target(self) -> str:
        module = sys.modules["__main__"]
        names = [name for name, value in vars(module).items() if value is self]
        if not names or not getattr(module, "__file__", None):
            raise ConfigError(
                "main() cannot tell where its application is.",
                action='Call it on a module-level variable of the script, under `if __name__ == "__main__":`; or use'
                " `stateflow run APP`.",
            )
        return f"{module.__file__}:{names[0]}"


def _with(options: AppOptions, given: dict[str, Any]) -> AppOptions:
    return replace(options, **given)


def load(target: str) -> App:
    """The application that ``module:attribute`` or ``file.py:attribute`` names.

    Raises ``ConfigError`` when there is none, or when the module itself raises: then it names the place.
    """
    place, colon, attribute = target.rpartition(":")
    if not colon or not place or not attribute:
        raise _no_app(target, "is not of the form module:attribute or file.py:attribute")
    module = _load_file(target, Path(place)) if place.endswith(".py") else _import(target, place)
    found = getattr(module, attribute, None)
    if not isinstance(found, App):
        what = "nothing" if found is None else f"a {type(found).__name__}"
        raise _no_app(target, f"names {what}, not a stateflow.App")
    return found


def _load_file(target: str, path: Path) -> Any:
    path = path.resolve()
    if not path.is_file():
        raise _no_app(target, f"names the file {path}, which does not exist")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None, "a path that ends in .py always has a loader"
    assert spec.loader is not None, "a path that ends in .py always has a loader"
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # so that its neighbours can be imported, as when it is run
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(spec.name)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as cause:
        _put_back(spec.name, before)
        raise _broken(target, cause, f"python {path}") from cause
    return module


def _put_back(name: str, module: Any) -> None:
    if module is None:
        del sys.modules[name]
    else:
        sys.modules[name] = module


def _import(target: str, name: str) -> Any:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as cause:
        if cause.name is None or not (name == cause.name or name.startswith(f"{cause.name}.")):
            raise _broken(target, cause, f"python -m {name}") from cause
        raise _no_app(
            target, f"names the module {name!r}, which cannot be found from {Path.cwd()}"
        ) from cause
    except (Exception, SystemExit) as cause:
        raise _broken(target, cause, f"python -m {name}") from cause


def _broken(target: str, cause: BaseException, whole: str) -> StateflowError:
    """The error for a module that raises while it is imported: where, and how to see all of it."""
    if isinstance(cause, StateflowError):
        return cause
    raised = None if isinstance(cause, SyntaxError) else user_traceback(cause)
    if isinstance(cause, SyntaxError):
        place, why = f" ({cause.filename}:{cause.lineno})", cause.msg
    else:
        place, why = "" if raised is None else f" ({raised.place})", str(cause)
    return ConfigError(
        f"{target!r} cannot be loaded: {type(cause).__name__}: {why}{place}.",
        action=f"Correct the code; `{whole}` shows the whole traceback.",
        target=target,
        **({} if raised is None else raised.fields()),
    )


def _no_app(target: str, why: str) -> ConfigError:
    return ConfigError(
        f"{target!r} {why}.", action="Name an application: `shop.app:app` or `shop/app.py:app`."
    )
