"""The verb of a stream that asks outside services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from stateflow.callbacks import checked, checked_or_none, checked_pick
from stateflow.codec.base import Codec
from stateflow.codec.infer import codec_for, codec_or_none, result_type
from stateflow.duration import declared_ms
from stateflow.errors import GraphError
from stateflow.operators.calls.async_step import Asking, Cache, map_async_node
from stateflow.operators.calls.call_limits import CallLimits
from stateflow.operators.steps.error_policy import Fail, Policy, Retry, retries_of
from stateflow.operators.steps.fields import Pick, picker
from stateflow.operators.topology.graph import Graph, Node

if TYPE_CHECKING:
    from stateflow.operators.dsl.stream import Stream

K = TypeVar("K")
V = TypeVar("V")
V2 = TypeVar("V2")
Q = TypeVar("Q")
A = TypeVar("A")

FAIL = Fail()
_TIMEOUT = timedelta(seconds=5)
_PAUSE = timedelta(milliseconds=100)
_CONCURRENCY_MAX = 1_000
_SECONDS_MAX = 240.0
"""One call with all its attempts. A worker that processes for 300 s without a poll is put out of its group."""


class CallingVerbs(Generic[K, V]):
    """The part of ``Stream`` that asks outside services."""

    _graph: Graph
    _node: Node

    @overload
    def map_async(
        self,
        function: Callable[[V], Awaitable[V2]],
        *,
        concurrency: int = 10,
        timeout: timedelta = _TIMEOUT,
        ordered: bool = True,
        retries: int = 0,
        pause: timedelta = _PAUSE,
        cache: Cache | None = None,
        value: Codec[V2] | type[V2] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, V2]: ...
    @overload
    def map_async(
        self,
        function: Callable[[V], V2],
        *,
        concurrency: int = 10,
        timeout: timedelta = _TIMEOUT,
        ordered: bool = True,
        retries: int = 0,
        pause: timedelta = _PAUSE,
        cache: Cache | None = None,
        value: Codec[V2] | type[V2] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, V2]: ...
    @overload
    def map_async(
        self,
        function: Callable[[Q], Awaitable[A]],
        *,
        of: Callable[[V], Q] | str,
        into: Callable[[V, A], V2],
        concurrency: int = 10,
        timeout: timedelta = _TIMEOUT,
        ordered: bool = True,
        retries: int = 0,
        pause: timedelta = _PAUSE,
        cache: Cache | None = None,
        value: Codec[V2] | type[V2] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, V2]: ...
    @overload
    def map_async(
        self,
        function: Callable[[Q], A],
        *,
        of: Callable[[V], Q] | str,
        into: Callable[[V, A], V2],
        concurrency: int = 10,
        timeout: timedelta = _TIMEOUT,
        ordered: bool = True,
        retries: int = 0,
        pause: timedelta = _PAUSE,
        cache: Cache | None = None,
        value: Codec[V2] | type[V2] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, V2]: ...
    def map_async(
        self,
        function: Callable[[Any], Any],
        *,
        of: Pick | None = None,
        into: Callable[[V, Any], Any] | None = None,
        concurrency: int = 10,
        timeout: timedelta = _TIMEOUT,
        ordered: bool = True,
        retries: int = 0,
        pause: timedelta = _PAUSE,
        cache: Cache | None = None,
        value: Codec[Any] | type[Any] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, Any]:
        """Each value replaced by what the function, which asks an outside service, gives for it.

        ``function`` is an ``async def``, or a plain function that blocks and is run in threads. It is given the value,
        or with ``of`` a part of it (a function or a field's name); ``into`` then makes the result of value and answer.

        At most ``concurrency`` calls are under way per task. An attempt that takes longer than ``timeout`` fails with
        ``TimeoutError``. A failed one is tried again up to ``retries`` times, after a ``pause`` that doubles from one
        to the next up to 5 s; what has failed for good follows ``on_error``. ``on_error=sf.Retry(n, then=…)`` says the
        same as ``retries=n, on_error=…``.

        Results come in the order of the records. With ``ordered=False`` those of a batch come as they are there, in
        the records' order only within a key. No call is under way when a batch is through, so none is at a commit. A
        call may be made again after a crash. ``cache`` keeps answers, and makes results depend on time.
        """
        if (of is None) != (into is None):
            raise GraphError(
                "map_async was given only one of `of` and `into`.",
                action="Give of=… (what is asked for) and into=… (the result of value and answer), or neither.",
            )
        checked(function, "map_async", waits=True)
        checked_or_none(into, "into of map_async")
        policy = _policy(retries, on_error)
        limits = _limits(concurrency, timeout, policy, pause)
        of_value = None if of is None else picker(checked_pick(of, "of of map_async"))
        asking = Asking(function, limits, ordered, cache, of_value, into)
        inferred = codec_or_none(result_type(into or function), "msgpack")
        codec = inferred if value is None else codec_for(value, "msgpack")
        from stateflow.operators.dsl.stream import Stream  # which is this, and more

        return Stream(self._graph, map_async_node(self._graph, self._node, asking, codec, policy))


def _policy(retries: int, on_error: Policy) -> Policy:
    if retries == 0:
        return on_error
    if isinstance(on_error, Retry):
        raise GraphError(
            f"map_async was given retries={retries} and on_error={on_error!r}.",
            action="Give one of them: on_error=sf.Retry(n, then=…) says the same as retries=n, on_error=….",
        )
    return Retry(retries, then=on_error)


def _limits(concurrency: int, timeout: timedelta, policy: Policy, pause: timedelta) -> CallLimits:
    if not 1 <= concurrency <= _CONCURRENCY_MAX:
        raise GraphError(
            f"map_async was given concurrency={concurrency!r}.", action=f"Give 1 to {_CONCURRENCY_MAX:,}."
        )
    timeout_ms, pause_ms = (
        declared_ms("timeout of map_async", timeout),
        declared_ms("pause of map_async", pause),
    )
    if timeout_ms < 1 or pause_ms < 0:
        raise GraphError(
            f"map_async was given timeout={timeout} and pause={pause}.",
            action="Give a timeout of at least 1 ms, and a pause that is not negative.",
        )
    retries = retries_of(policy)
    limits = CallLimits(concurrency, timeout_ms / 1000, retries, pause_ms / 1000)
    if limits.seconds_max > _SECONDS_MAX:
        raise GraphError(
            f"A record may wait {limits.seconds_max:g} s for its {retries + 1} calls.",
            action=f"Choose timeout, retries and pause so that it is at most {_SECONDS_MAX:g} s: a worker that is"
            " busy for five minutes is taken for dead.",
        )
    return limits
