"""The commit protocol as a small machine that can be searched whole: every order, every crash, every late
request.

One task reads one input, keeps one or two changelogs, writes outputs and commits. Around it: a transaction
coordinator that speaks Kafka's old protocol (an EndTxn names a producer epoch and no transaction, so one that
arrives late ends whatever that epoch has open), crashes, failures, takeovers, and a cleaner. ``explore``
visits every reachable state within the given number of faults, breadth first, and returns the shortest
history that breaks a promise. Takeover and reading use the same code as the real thing,
``stateflow.changelog.sequences``.

Not modelled, because it adds no behaviour: a zombie is a crashed owner whose requests are still on their
way; the time between a decision and its markers is a produce request that came before the decision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from stateflow.changelog.commit_record import COMMIT_KEY, CommitRecord
from stateflow.changelog.position import InputPosition
from stateflow.changelog.sequences import CommittedEnd
from stateflow.lab.protocol.search import Broken, Outcome, search
from stateflow.lab.protocol.truth import SOURCE, committed_end, processed, read, show, tail
from stateflow.lab.protocol.world import (
    GROUP,
    OPEN,
    OUTPUT,
    Client,
    Disk,
    EndTxn,
    Entry,
    Left,
    Log,
    Send,
    State,
    World,
    end_transaction,
    folded,
    new_epoch,
    set_log,
    spell,
    stable_next,
    visible,
)

CHANGELOGS = ("by-key", "totals")


@dataclass(frozen=True, slots=True)
class Protocol:
    """What the task does. The defaults are the protocol of ``docs/exactly-once.md``, without its first
    defence."""

    commit_records: bool = True
    """End each commit with commit records, and believe them rather than Kafka's marker and the group's
    offset."""
    flush_before_record: bool = True
    """Wait until everything of the commit is acknowledged before the commit records are sent."""
    flush_before_offset: bool = True
    """Wait until the commit records are acknowledged before the group's offset is sent."""
    rewrites: bool = True
    """At takeover, write the true value of every orphaned key before anything else."""
    new_epoch_after_retry: bool = False
    """Fence oneself when the EndTxn of a commit was sent more than once."""
    new_epoch_after_commit: bool = False
    """Fence oneself after every commit: the paranoid mode."""
    new_epoch_after_abort: bool = True
    """Never go on with a producer that has aborted."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What the world may do, and how often."""

    retries: int = 1
    """EndTxn requests that the client sends again while the first copy is still on its way."""
    duplicates: int = 0
    """EndTxn requests that something else repeats: the client cannot know."""
    crashes: int = 1
    aborts: int = 0
    cleans_undecided: bool = False
    """The cleaner removes a value because of a newer one whose commit is not decided yet."""
    loses_store: bool = True
    """A crash may take the local store with it."""
    fences: bool = True
    """A new owner gets a new producer epoch (switched off to show that the proof rests on it)."""
    inputs: int = 3
    changelogs: int = 1


Step = tuple[str, World]


def explore(
    protocol: Protocol, faults: Faults, *, outputs_once: bool, states_max: int = 2_000_000
) -> Outcome:
    """Search every history. ``outputs_once`` also demands that no output is visible twice."""
    return search(_Model(protocol, faults, outputs_once), states_max)


class _Model:
    """The rules: which steps are possible, and what must hold."""

    def __init__(self, protocol: Protocol, faults: Faults, outputs_once: bool) -> None:
        self.protocol = protocol
        self.faults = faults
        self.outputs_once = outputs_once
        self.changelogs = CHANGELOGS[: faults.changelogs]

    def start(self) -> World:
        names = (*self.changelogs, OUTPUT, GROUP)
        left = Left(self.faults.retries, self.faults.duplicates, self.faults.crashes, self.faults.aborts)
        return World(tuple((name, Log()) for name in names), 0, frozenset(), frozenset(), None, None, left)

    # --- steps ----------------------------------------------------------------------------------------

    def steps(self, world: World) -> Iterator[Step]:
        """Everything that can happen next."""
        for late in world.late:
            how = "commit" if late.commits else "abort"
            arrived = world._replace(late=world.late - {late})
            yield f"a late EndTxn({how}) arrives", end_transaction(arrived, late)
        for name in self.changelogs:
            cleaned = _cleaned(world.log(name), self.faults.cleans_undecided)
            yield f"the cleaner runs on {name}", set_log(world, name, cleaned)
        client = world.client
        if client is None:
            yield from self._take_over(world)
            return
        yield from self._crash(world, client)
        if client.phase == "idle":
            if client.position < self.faults.inputs:
                for batch in {1, min(2, self.faults.inputs - client.position)}:
                    yield f"process {batch} input(s)", world._replace(client=self._begin(client, batch))
        elif client.sends:
            yield from self._deliver(world, client)
        elif client.phase == "data":
            yield "all acknowledged, send the commit", world._replace(client=self._seal(client))
        elif client.phase == "recorded":
            yield "commit records acknowledged, send the offset", world._replace(client=_with_offset(client))
        elif client.phase == "sealed":
            yield from self._commit(world, client)
        elif client.phase == "committed":
            yield "apply to the local store", self._apply(world, client)
        if client.phase in ("data", "recorded", "sealed") and world.left.aborts:
            yield from self._abort(world, client)

    def _crash(self, world: World, client: Client) -> Iterator[Step]:
        if not world.left.crashes:
            return
        left = world.left._replace(crashes=world.left.crashes - 1)
        gone = world._replace(client=None, left=left)
        yield "crash", gone
        if client.phase == "sealed" and not client.sends:
            ending = EndTxn(client.epoch, commits=True)
            yield "crash with the EndTxn under way", gone._replace(late=world.late | {ending})
        if self.faults.loses_store and world.disk is not None:
            yield "crash, the local store is lost", gone._replace(disk=None)

    def _begin(self, client: Client, batch: int) -> Client:
        inputs = range(client.position, client.position + batch)
        sends = [Send(OUTPUT, bytes([i]), b"") for i in inputs]
        stores = self._truth(client.position + batch)
        for name, old, new in zip(self.changelogs, client.stores, stores, strict=True):
            sends += [Send(name, key, value) for key, value in new if dict(old).get(key) != value]
        begun = client._replace(phase="data", batch=batch, sends=tuple(sends), added=frozenset())
        return begun if self.protocol.flush_before_record else self._seal(begun)

    def _seal(self, client: Client) -> Client:
        if not self.protocol.commit_records:
            return _with_offset(client)
        position = client.position + client.batch
        record = CommitRecord(client.owner, client.sequence + 1, 0, InputPosition({SOURCE: position}))
        records = tuple(Send(name, COMMIT_KEY, record.encode()) for name in self.changelogs)
        sealed = client._replace(phase="recorded", sends=client.sends + records)
        return sealed if self.protocol.flush_before_offset else _with_offset(sealed)

    def _deliver(self, world: World, client: Client) -> Iterator[Step]:
        """The oldest waiting record of any partition reaches its leader; partitions do not wait for each
        other."""
        for partition in sorted({send.partition for send in client.sends}):
            send = next(send for send in client.sends if send.partition == partition)
            index = client.sends.index(send)
            rest = client._replace(
                sends=client.sends[:index] + client.sends[index + 1 :], added=client.added | {partition}
            )
            name = f"{partition} gets {spell(send)}"
            if partition in client.added and partition not in world.ongoing:
                # The leader asks the coordinator, which knows of no such transaction any more (KIP-890/1).
                yield name + ": refused, the task fails", world._replace(client=None)
                continue
            log = world.log(partition)
            entry = Entry(log.offset_next, send.key, send.value, OPEN)
            grown = set_log(world, partition, Log((*log.entries, entry), log.offset_next + 1))
            yield name, grown._replace(ongoing=world.ongoing | {partition}, client=rest)

    def _commit(self, world: World, client: Client) -> Iterator[Step]:
        ending = EndTxn(client.epoch, commits=True)
        done = client._replace(phase="committed")
        yield "EndTxn(commit)", end_transaction(world, ending)._replace(client=done)
        left = world.left
        late = world.late | {ending}
        if left.retries:
            spent = left._replace(retries=left.retries - 1)
            retried = end_transaction(world, ending)._replace(
                client=done._replace(retried=True), late=late, left=spent
            )
            yield "EndTxn(commit), sent twice: one copy is late", retried
        if left.duplicates:
            spent = left._replace(duplicates=left.duplicates - 1)
            yield (
                "EndTxn(commit), repeated by the network",
                end_transaction(world, ending)._replace(client=done, late=late, left=spent),
            )

    def _abort(self, world: World, client: Client) -> Iterator[Step]:
        ending = EndTxn(client.epoch, commits=False)
        left = world.left._replace(aborts=world.left.aborts - 1)
        again = client._replace(phase="idle", batch=0, sends=(), added=frozenset())
        gone = None if self.protocol.new_epoch_after_abort else again
        aborted = end_transaction(world, ending)._replace(client=gone, left=left)
        yield "EndTxn(abort)", aborted
        if left.retries:
            spent = left._replace(retries=left.retries - 1)
            yield "EndTxn(abort), sent twice", aborted._replace(late=world.late | {ending}, left=spent)

    def _apply(self, world: World, client: Client) -> World:
        position = client.position + client.batch
        stores = self._truth(position)
        disk = Disk(stores, tuple(world.log(name).offset_next for name in self.changelogs))
        if self.protocol.new_epoch_after_commit and self.faults.fences:
            world = new_epoch(world)
        idle = client._replace(
            epoch=world.epoch,
            phase="idle",
            sequence=client.sequence + 1,
            position=position,
            stores=stores,
            batch=0,
            retried=False,
        )
        again = client.retried and self.protocol.new_epoch_after_retry
        return world._replace(client=None if again else idle, disk=disk)

    # --- takeover -------------------------------------------------------------------------------------

    def _take_over(self, world: World) -> Iterator[Step]:
        fenced = end_transaction(world, EndTxn(world.epoch, commits=False))
        fenced = new_epoch(fenced) if self.faults.fences else fenced
        end, start = self._decide(fenced)
        stores = self._restored(fenced, end)
        if stores != self._truth(start):
            raise Broken(f"after takeover the input goes on at {start}, but the state is {show(stores)}")
        client = Client(fenced.epoch, end.owner, end.sequence, start, stores)
        if self.protocol.rewrites and end.is_torn:
            sends = [
                Send(name, key, dict(store).get(key, b""))
                for name, store in zip(self.changelogs, stores, strict=True)
                for key in sorted(end.orphaned_keys.get(name, ()))
            ]
            client = client._replace(phase="data", sends=tuple(sends))
        yield f"takeover at input {start}", fenced._replace(client=client)

    def _decide(self, world: World) -> tuple[CommittedEnd, int]:
        offsets = [entry.value[0] for entry in visible(world.log(GROUP))]
        start = offsets[-1] if offsets else 0
        end = self._committed_end(world)
        if end.last is not None:
            start = end.last.position.offsets[SOURCE]
        return end, start

    def _committed_end(self, world: World) -> CommittedEnd:
        return committed_end(world.logs[: len(self.changelogs)])

    def _restored(self, world: World, end: CommittedEnd) -> tuple[State, ...]:
        """From the local store and the rest of the log where there is a store, from the log alone
        otherwise."""
        stores = []
        for index, name in enumerate(self.changelogs):
            base = dict(world.disk.stores[index]) if world.disk else {}
            first = world.disk.offsets_next[index] if world.disk else 0
            rows = [e for e in visible(world.log(name)) if first <= e.offset < end.restore_next[name]]
            stores.append(folded(base, rows))
        return tuple(stores)

    # --- promises -------------------------------------------------------------------------------------

    def check(self, world: World) -> None:
        """What must hold in every state."""
        if self.protocol.commit_records:
            for index, name in enumerate(self.changelogs):
                self._check_reader(world.log(name), index)
            self._check_group(world)
        shown = [entry.key[0] for entry in visible(world.log(OUTPUT))]
        if self.outputs_once and len(shown) != len(set(shown)):
            raise Broken(f"outputs are visible twice: {shown}")
        if world.client is not None and set(range(world.client.position)) - set(shown):
            raise Broken(f"the task is at input {world.client.position}, but only {shown} were put out")

    def check_rest(self, world: World) -> None:
        """Nothing in particular."""

    def _check_reader(self, log: Log, index: int) -> None:
        """Anyone who reads one changelog, at any time, sees the state after some commit: never half of
        one."""
        found = read(log)
        if found is None:
            return  # before the first commit of all there is nothing to compare with
        position, state = found
        if state != self._truth(position)[index]:
            raise Broken(f"a reader finds {state} where input {position} is committed")

    def _check_group(self, world: World) -> None:
        """Whoever looks at the group's offset from outside never takes input for done that is not."""
        last = self._committed_end(world).last
        recorded = last.position.offsets[SOURCE] if last else 0
        for entry in visible(world.log(GROUP)):
            if entry.value[0] > recorded:
                raise Broken(f"the group is at input {entry.value[0]}, but the state only at {recorded}")

    def _truth(self, position: int) -> tuple[State, ...]:
        return processed(position)[: self.faults.changelogs]


@cache
def _cleaned(log: Log, cleans_undecided: bool) -> Log:
    """Older records of a key vanish, up to the last stable offset; aborted ones do too."""
    newest: dict[bytes, int] = {}
    limit = stable_next(log) if cleans_undecided else tail(log).committed_next
    for entry in visible(log):
        if entry.offset < limit:
            newest[entry.key] = entry.offset
    kept = tuple(
        entry for entry in log.entries if entry.status == OPEN or entry.offset >= newest.get(entry.key, 0)
    )
    return Log(kept, log.offset_next)


def _with_offset(client: Client) -> Client:
    offset = Send(GROUP, b"offset", bytes([client.position + client.batch]))
    return client._replace(phase="sealed", sends=(*client.sends, offset))
