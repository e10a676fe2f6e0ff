"""State that is forgotten, nested or found by an index; steps that let records go; what producers have partitioned."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import stateflow as sf
from stateflow.lab.operators.logs import SECOND_MS, Row
from stateflow.lab.operators.verb import Inputs, Rule, Verb, frozen, output

_TTL_MS, _LIST_MAX, _KINDS = 4 * SECOND_MS, 50, 5
Results = Iterable[tuple[Any, Any]]


def keeping_verbs() -> list[Verb]:
    """All of them."""
    return [
        Verb("state with a ttl", _process(Forgetful), _forgetful_results),
        Verb("state with a ttl per write", _process(Offers), _offers_results),
        Verb("aggregate with a ttl", _expiring, _expiring_results),
        Verb("nested maps", _process(Nested), _nested_results),
        Verb("maps with an index", _process(Indexed), _indexed_results),
        Verb("skip leaves no trace", _skipping, _skipping_results),
        Verb("dead letters", _dead, _dead_results),
        Verb("dead letters of late records", _late, _late_results, late_ms=8 * SECOND_MS),
        Verb("retries", _retried, _retried_results),
        Verb("state by producers' partitions", _by_producers, _by_producers_results, is_scalable=False),
    ]


def _process(kind: type[sf.Operator[str, int, list[Any]]]) -> Any:
    def build(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
        topic = output(inputs, sf.Json)
        inputs.stream().process(kind, name="kept").to(topic)
        return topic, "all"

    return build


# --- a time to live -------------------------------------------------------------------------------------


class Forgetful(sf.Operator[str, int, list[Any]]):
    """Tells what it still knows of each type of state, and then keeps one more."""

    last: sf.Value[int | None] = sf.state(ttl=timedelta(milliseconds=_TTL_MS))
    count: sf.Counter = sf.state(ttl=timedelta(milliseconds=_TTL_MS))
    listed: sf.ListOf[int] = sf.state(ttl=timedelta(milliseconds=_TTL_MS), max_length=_LIST_MAX)
    tags: sf.MapOf[int, int] = sf.state(ttl=timedelta(milliseconds=_TTL_MS))
    seen: sf.SetOf[int] = sf.state(ttl=timedelta(milliseconds=_TTL_MS))

    def on_record(self, value: int, ctx: sf.Context[list[Any]]) -> None:
        """Tell, then keep."""
        counted = self.count.get()
        ctx.emit(
            [self.last.get(), counted, list(self.listed), sorted(self.tags.items()), sorted(self.seen), value]
        )
        self.last.set(value)
        self.count.add()
        self.listed.append(value)
        self.tags.put(value % _KINDS, value)
        self.seen.add(value % _KINDS)


def _forgetful_results(rows: Sequence[Row]) -> Results:
    for key, of_key in _of_keys(rows).items():
        count, before_ms = 0, 0
        for number, row in enumerate(of_key):
            live = [other for other in of_key[:number] if other.timestamp_ms + _TTL_MS > row.timestamp_ms]
            count = count if live and before_ms + _TTL_MS > row.timestamp_ms else 0
            tags = {other.given % _KINDS: other.given for other in live}
            listed = [other.given for other in live][-_LIST_MAX:]
            last = live[-1].given if live else None
            told = [
                last,
                count,
                listed,
                [list(each) for each in sorted(tags.items())],
                sorted(tags),
                row.given,
            ]
            yield key, frozen(told)
            count, before_ms = count + 1, row.timestamp_ms


def _of_keys(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.key].append(row)
    return found


class Offers(sf.Operator[str, int, list[Any]]):
    """What is offered, each for as long as it says, and some for ever."""

    offers: sf.MapOf[int, int] = sf.state(ttl_per_write=True)

    def on_record(self, value: int, ctx: sf.Context[list[Any]]) -> None:
        """Tell what there is, then offer one more."""
        ctx.emit([value, sorted(self.offers.items())])
        lasts_ms = _lasts_ms(value)
        self.offers.put(value % 7, value, ttl=None if lasts_ms is None else timedelta(milliseconds=lasts_ms))


def _lasts_ms(value: int) -> int | None:
    return None if value % 6 == 0 else value % 6 * SECOND_MS


def _offers_results(rows: Sequence[Row]) -> Results:
    offers: dict[str, dict[int, tuple[int, int | None]]] = defaultdict(dict)
    for row in rows:
        of_key, now_ms = offers[row.key], row.timestamp_ms
        live = {
            name: value for name, (value, until_ms) in of_key.items() if until_ms is None or until_ms > now_ms
        }
        yield row.key, frozen([row.given, [list(each) for each in sorted(live.items())]])
        lasts_ms = _lasts_ms(row.given)
        of_key[row.given % 7] = row.given, None if lasts_ms is None else now_ms + lasts_ms


def _expiring(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    folded: sf.Aggregate[int, int, int] = sf.fold(7, lambda one, two: (3 * one + two) % 1_009, type=int)
    inputs.stream().aggregate(folded, name="kept", ttl=timedelta(milliseconds=_TTL_MS)).to(topic)
    return topic, "newest"


def _expiring_results(rows: Sequence[Row]) -> Results:
    for key, of_key in _of_keys(rows).items():
        number, before_ms = 7, 0
        for row in of_key:
            if before_ms + _TTL_MS <= row.timestamp_ms:
                number = 7
            number, before_ms = (3 * number + row.given) % 1_009, row.timestamp_ms
        yield key, number


# --- maps of maps, and indexes --------------------------------------------------------------------------


class Nested(sf.Operator[str, int, list[Any]]):
    """A map of maps: inner entries come and go, and with them the outer ones."""

    tree: sf.MapOf[str, sf.MapOf[int, int]] = sf.state()

    def on_record(self, value: int, ctx: sf.Context[list[Any]]) -> None:
        """Put, remove one, or remove a whole branch; tell all that there is."""
        branch = f"b{value % 3}"
        if value % 10 == 0:
            self.tree.remove(branch)
        elif value % 4 == 0:
            self.tree[branch].remove(value % 7)
        else:
            self.tree[branch].put(value % 7, value)
        ctx.emit(
            [[name, [list(each) for each in self.tree[name].items()]] for name in sorted(self.tree.keys())]
        )


def _nested_results(rows: Sequence[Row]) -> Results:
    trees: dict[str, dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        tree, branch, value = trees[row.key], f"b{row.given % 3}", row.given
        if value % 10 == 0:
            tree.pop(branch, None)
        elif value % 4 == 0:
            tree[branch].pop(value % 7, None)
        else:
            tree[branch][value % 7] = value
        told = [
            [name, [list(each) for each in sorted(tree[name].items())]] for name in sorted(tree) if tree[name]
        ]
        yield row.key, frozen(told)


class Indexed(sf.Operator[str, int, list[Any]]):
    """Finds entries of a map by what is made of their values."""

    items: sf.MapOf[int, int] = sf.state(index={"rest": lambda value: value % 3})

    def on_record(self, value: int, ctx: sf.Context[list[Any]]) -> None:
        """Change one, then tell all that are alike."""
        if value % 8 == 0:
            self.items.remove(value % 11)
        else:
            self.items.put(value % 11, value)
        ctx.emit([value, sorted(self.items.by("rest", value % 3))])


def _indexed_results(rows: Sequence[Row]) -> Results:
    items: dict[str, dict[int, int]] = defaultdict(dict)
    for row in rows:
        of_key = items[row.key]
        if row.given % 8 == 0:
            of_key.pop(row.given % 11, None)
        else:
            of_key[row.given % 11] = row.given
        alike = [list(each) for each in sorted(of_key.items()) if each[1] % 3 == row.given % 3]
        yield row.key, frozen([row.given, alike])


# --- what fails -----------------------------------------------------------------------------------------


class Failing(sf.Operator[str, int, int]):
    """Writes before it fails, at every fifth value."""

    total: sf.Value[int] = sf.state(default=0)
    listed: sf.ListOf[int] = sf.state(max_length=3)

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        """Add, tell, and fail."""
        self.total.set(self.total.get() + value)
        self.listed.append(value)
        ctx.emit(100 * self.total.get() + sum(self.listed))
        if value % 5 == 0:
            raise ValueError(value)


def _skipping(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    inputs.stream().process(Failing, name="failing", on_error=sf.Skip()).to(topic)
    return topic, "all"


def _skipping_results(rows: Sequence[Row]) -> Results:
    kept: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        if row.given % 5:
            kept[row.key].append(row.given)
            yield row.key, 100 * sum(kept[row.key]) + sum(kept[row.key][-3:])


def _no_fifth(value: int) -> int:
    if value % 5 == 0:
        raise ValueError(value)
    return value


def _dead(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    """Records are sent as they were read: key and value as one value, behind the re-key step."""
    topic, dead = output(inputs), inputs.app.topic("dead", key=str, value=sf.MsgPack)
    inputs.stream().map(_no_fifth, value=int, on_error=sf.DeadLetter("dead")).sum(name="sums").to(topic)
    return dead, "all"


def _dead_results(rows: Sequence[Row]) -> Results:
    return [(row.key, (row.key, row.given)) for row in rows if row.given % 5 == 0]


def _late(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    dead = inputs.app.topic("dead", key=str, value=sf.MsgPack)
    window = sf.Tumbling(timedelta(milliseconds=_TTL_MS))
    stream = inputs.stream()
    stream.window(window, late=sf.DeadLetter("dead")).count(name="counts").map(str, value=str).to(
        output(inputs, str, sf.WindowedKey(sf.String, _TTL_MS))
    )
    return dead, "all"


def _late_results(rows: Sequence[Row]) -> Results:
    """Late is what comes behind the end of its window, as event time of its partition tells."""
    marks_ms: dict[int, int] = defaultdict(int)
    for row in rows:
        mark_ms = marks_ms[row.partition] = max(marks_ms[row.partition], row.timestamp_ms)
        if row.timestamp_ms // _TTL_MS * _TTL_MS + _TTL_MS <= mark_ms:
            yield row.key, (row.key, row.given)


class _Unsteady:
    """Fails at the first attempt at some values, whoever makes it."""

    def __init__(self) -> None:
        self._tried: set[int] = set()

    def __call__(self, value: int) -> int:
        if value % 4 == 0 and value not in self._tried:
            self._tried.add(value)
            raise ConnectionError(value)
        return 2 * value


def _retried(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    inputs.stream().map(_Unsteady(), value=int, on_error=sf.Retry(1)).sum(name="sums").to(topic)
    return topic, "newest"


def _retried_results(rows: Sequence[Row]) -> Results:
    return [(key, 2 * sum(row.given for row in of_key)) for key, of_key in _of_keys(rows).items()]


# --- producers' partitions ------------------------------------------------------------------------------


def _by_producers(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs, sf.Json)
    inputs.app.stream(inputs.left, co_partitioned=True).process(Nested, name="kept").to(topic)
    return topic, "all"


def _by_producers_results(rows: Sequence[Row]) -> Results:
    return _nested_results(rows)
