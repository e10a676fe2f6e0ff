"""The typed operator class: state declared as attributes, one method called per record."""

from __future__ import annotations

import inspect
import typing
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from stateflow.callbacks import EMIT, checked
from stateflow.catalog.model import StoreEntry
from stateflow.codec.base import Codec
from stateflow.codec.structured import MsgPack, Plain
from stateflow.codec.timer import TimerTime
from stateflow.errors import GraphError
from stateflow.operators.classes.every import ROUND, Every
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.headers import HeadersLike, headers_of
from stateflow.operators.steps.timers import due_ms_of
from stateflow.record import Headers, TopicPartition
from stateflow.state.declare import declared_fields
from stateflow.state.kinds import StateOptions
from stateflow.state.scope import Scope
from stateflow.state.timers import Timers, timers_entry
from stateflow.times import emitted_ms

K = TypeVar("K")
V = TypeVar("V")
O = TypeVar("O")  # noqa: E741 - output, beside K and V
if (
    TYPE_CHECKING
):  # a default is for type checkers alone: at run time ``Context.__class_getitem__`` supplies it
    from typing_extensions import TypeVar as DefaultedTypeVar

    AnyK = DefaultedTypeVar("AnyK", covariant=True, default=Any)
else:
    AnyK = TypeVar("AnyK", covariant=True)

Emitted = tuple[Any, int, Headers]
"""Value, event time and headers of what an operator passes on."""


class PendingTimer(NamedTuple):
    """A timer that is set for a key."""

    name: str
    due_ms: int
    """When it is due, ms since 1970 UTC."""
    time: TimerTime
    """Which time it follows."""
    payload: Any
    """What it was given; None for nothing."""


class Context(Generic[O, AnyK]):
    """The record that an operator is working on, and how it answers. Valid during the call only.

    ``Context[O]`` emits values of type O; ``Context[O, K]`` says of which type the key is, too.
    """

    if not TYPE_CHECKING:

        def __class_getitem__(cls, arguments: Any) -> Any:
            given = arguments if isinstance(arguments, tuple) else (arguments,)
            return super().__class_getitem__(given if len(given) != 1 else (*given, Any))

    def __init__(
        self,
        stage: StageContext,
        scope: Scope,
        key_codec: Codec[Any],
        emitted: list[Emitted],
        timers: Timers | None,
    ) -> None:
        self._stage = stage
        self._scope = scope
        self._key_codec = key_codec
        self._timers = timers
        self._emitted = emitted
        self.source = TopicPartition("", -1)
        """Topic and partition that the record was read from; for a timer the operator's name and the partition."""
        self.offset = -1
        """Its offset there; −1 for a timer."""
        self.headers: Headers = ()
        """The record's headers; a timer has none."""
        self.payload: Any = None
        """What the timer was given when it was set; None for nothing, and for a record."""

    @property
    def key(self) -> AnyK:
        """The record's key."""
        key: AnyK = self._key_codec.decode(self._scope.key)
        return key

    def header(self, name: str) -> bytes | None:
        """The newest of the record's headers of that name; None where it has none."""
        return next((content for own, content in reversed(self.headers) if own == name), None)

    @property
    def timestamp_ms(self) -> int:
        """Event time of the record. Of a timer: when it was due or, by the clock, event time as far as known."""
        return self._scope.timestamp_ms

    @property
    def watermark_ms(self) -> int:
        """Event time up to which input is complete, the current record counted; −1 before it is known."""
        return self._scope.watermark_ms

    def emit(self, value: O, *, timestamp_ms: int | None = None, headers: HeadersLike | None = None) -> None:
        """Pass a value on under the record's key; event time and headers are the record's unless given.

        Raises ``ValueError`` or ``TypeError`` for a time that is none, which follows the step's policy.
        """
        at_ms = self._scope.timestamp_ms if timestamp_ms is None else emitted_ms(timestamp_ms)
        self._emitted.append((value, at_ms, self.headers if headers is None else headers_of(headers)))

    def timer(
        self,
        name: str,
        *,
        after: timedelta | None = None,
        at: int | datetime | None = None,
        time: TimerTime = "event",
        payload: Any = None,
    ) -> None:
        """Have ``on_timer(name, …)`` called for this key when its time has come; set again, it is replaced.

        ``after`` counts from the record's event time, or from now by the clock with ``time="processing"``;
        ``at`` is ms since 1970 UTC or a datetime with a time zone. A time that has passed is due at once.
        ``payload`` is ``ctx.payload`` then: a dict, list, str, number, bool, bytes or datetime of up to 64 KiB.
        """
        if not isinstance(name, str):
            raise GraphError(
                f"A timer has the name {name!r}.",
                action='Give it a text: ctx.timer("idle", after=timedelta(…)).',
            )
        if name == ROUND:
            raise ValueError(f"a timer cannot have the name {name!r}, which every=… has taken")
        due_ms = due_ms_of(after, at, time, self._scope.timestamp_ms, self._stage.clock.now_ms())
        self._kept_timers().set(name, due_ms, time, b"" if payload is None else Plain.encode(payload))

    def timer_due_ms(self, name: str) -> int | None:
        """When a timer of this key is due, ms since 1970 UTC; None where none of that name is pending."""
        return self._kept_timers().due_ms(name)

    def timers(self) -> list[PendingTimer]:
        """All pending timers of this key, the first to be due first, equal times by name. Reads each of them."""
        found = [
            PendingTimer(name, due_ms, time, MsgPack.decode(payload) if payload else None)
            for name, (time, due_ms, _, payload) in self._kept_timers().of_key()
            if name != ROUND
        ]
        return sorted(found, key=_due_and_name)

    def cancel_timer(self, name: str) -> None:
        """Drop a timer of this key; one that is not pending is not an error."""
        self._kept_timers().cancel(name)

    def count(self, metric: str, amount: int = 1) -> None:
        """Add to a counter of the task."""
        self._stage.count(metric, amount)

    def _kept_timers(self) -> Timers:
        if self._timers is None:
            raise GraphError(
                "A timer is set by an operator that has no on_timer.",
                action="Write on_timer(self, name, ctx) into the operator class.",
            )
        return self._timers


def _due_and_name(timer: PendingTimer) -> tuple[int, str]:
    return timer.due_ms, timer.name


class Operator(Generic[K, V, O]):
    """Base of stateful operators: keys of type K, values V in, values O out.

    Declare state as annotated attributes (``total: Value[int] = state(default=0)``); every handle works on
    the key of the current record. There is one instance per task: keep nothing else on it.
    """

    if not TYPE_CHECKING:  # a type checker would take any attribute for settable

        def __setattr__(self, name: str, value: Any) -> None:
            if isinstance(getattr(type(self), name, None), StateOptions):
                raise GraphError(
                    f"{type(self).__name__}.{name} was assigned to, which would replace the state itself.",
                    action=f"Change what it holds: self.{name}.set(…) of a Value, add, put or append of others.",
                )
            super().__setattr__(name, value)

    every: Every | None = None
    """How often ``on_every`` is called for each key: ``every = sf.Every(timedelta(minutes=5))``."""

    def on_record(self, value: V, ctx: Context[O, K], /) -> None:
        """Called for each record, in order.

        The value is None for a *tombstone*, a record of a source topic without a value: producers of tables say so
        that the key was deleted.
        """
        raise NotImplementedError

    def on_timer(self, name: str, ctx: Context[O, K], /) -> None:
        """Called when a timer of this name is due, under its key; it is pending no longer.

        Its effects and its end are one commit. A key's timers in event time are called before the record that moves
        event time past them, those of different keys in the order in which they are due, and each sees state as
        of the time at which it is due. If it raises, the step's policy says whether the task stops or the timer is
        let go.
        """
        raise NotImplementedError

    def on_every(self, ctx: Context[O, K], /) -> None:
        """Called at each tick of ``every`` for each key that the operator has state of, under its key.

        A key takes part from the record on that leaves state of it, and until there is none. Its effects are committed
        with the note that the key had its turn; a tick is spread over as many turns of the task, and commits, as it
        takes. In event time a key is called for each tick that passes, as a timer is; by the clock those that were
        missed, as while nothing ran, are one call. What it raises follows the step's policy; the key has its next turn
        all the same.
        """
        raise NotImplementedError


class OperatorClass:
    """An operator class taken apart: its states and the types that it was declared with."""

    def __init__(
        self, name: str, owner: type[Operator[Any, Any, Any]], handlers: tuple[str, ...] = ("on_record",)
    ) -> None:
        if not (isinstance(owner, type) and issubclass(owner, Operator)):
            raise not_a_class(name, owner)
        for handler in handlers:
            if getattr(owner, handler, None) in (None, Operator.on_record):
                raise GraphError(
                    f"{owner.__name__} has no {handler}.", action=f"Write {handler}(self, value, ctx)."
                )
        for method in (*handlers, "on_timer", "on_every"):
            checked(getattr(owner, method), f"{owner.__name__}.{method} of the operator", name, instead=EMIT)
        _check_made_without_arguments(name, owner)
        self.name = name
        self.owner = owner
        self.handlers = handlers
        """The methods that are called for records, one for each input."""
        self.fields = declared_fields(owner, name)
        self.every = _checked_every(owner, has_state=bool(self.fields))
        self.sets_timers = owner.on_timer is not Operator.on_timer
        self.timers_store = f"{name}-timers" if self.sets_timers or self.every else None
        """Name of the store of its timers; None for an operator with neither ``on_timer`` nor ``every``."""
        self.key_type, self.value_type, self.output_type = _type_arguments(owner)

    def entries(self, key_codec: Codec[Any]) -> tuple[StoreEntry, ...]:
        """All its stores as the catalog describes them, that of its timers last."""
        stores = tuple(field.entry("", key_codec) for field in self.fields)
        if self.timers_store is None:
            return stores
        return (*stores, timers_entry(self.timers_store, key_codec))


def not_a_class(name: str, found: object) -> GraphError:
    """The refusal of what is given for an operator class."""
    if isinstance(found, Operator):
        what, of = f"an instance of {type(found).__name__}", type(found).__name__
    else:
        what, of = repr(found), "it"
    return GraphError(
        f"The operator {name!r} is {what}, not a class derived from sf.Operator.",
        action=f"Pass the class itself: each task makes its own instance. What {of} is to be told, say as class"
        " attributes, which a subclass may set otherwise: class Strict(Limit): cents_max = 5.",
    )


def _check_made_without_arguments(name: str, owner: type[Operator[Any, Any, Any]]) -> None:
    """Each task makes an instance, and has nothing to give it. Raises ``GraphError``."""
    try:
        inspect.signature(owner).bind()
    except TypeError as cause:
        raise GraphError(
            f"The operator {name!r} cannot be made: {owner.__name__}.__init__ wants arguments ({cause}).",
            action="Each task makes it without any. Say them as class attributes, which a subclass may set otherwise:"
            " class Strict(Limit): cents_max = 5.",
        ) from cause
    except ValueError:
        return  # one that Python cannot tell


def _checked_every(owner: type[Operator[Any, Any, Any]], *, has_state: bool) -> Every | None:
    every = owner.every if isinstance(owner.every, Every) else None
    has_method = owner.on_every is not Operator.on_every
    if has_method == (every is not None) and (every is None or has_state):
        return every
    if every is None:
        what, action = "has on_every and does not say how often", "Write every = sf.Every(timedelta(…))."
    elif has_method:
        what, action = "has on_every and no state, by which its keys are known", "Declare a state."
    else:
        what, action = "has every and no on_every", "Write on_every(self, ctx)."
    raise GraphError(f"{owner.__name__} {what}.", action=action)


def _type_arguments(owner: type) -> tuple[Any, Any, Any]:
    """K, V and O of ``class Fraud(Operator[str, Payment, Alert])``; None for those it leaves open."""
    for base in owner.__mro__:
        for original in vars(base).get("__orig_bases__", ()):
            if typing.get_origin(original) is Operator:
                arguments = typing.get_args(original)
                return tuple(None if isinstance(part, TypeVar) else part for part in arguments)  # type: ignore[return-value]
    return None, None, None
