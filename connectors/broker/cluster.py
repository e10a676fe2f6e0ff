"""A Kafka cluster of one or three brokers on this machine, as child processes."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from stateflow.connectors.broker.distribution import KafkaDistribution, kafka_distribution
from stateflow.connectors.broker.features import finalized_features
from stateflow.connectors.broker.filelock import try_lock
from stateflow.connectors.broker.node import SMALL_JVM, BrokerNode, Jvm, NodeLife, random_id
from stateflow.connectors.broker.settings import HOST, NodePorts, node_settings
from stateflow.errors import ConfigError, SetupError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

START_TIMEOUT_SECONDS = 90.0
PORT_ATTEMPTS = 4
POLL_SECONDS = 0.03
_PORT_TAKEN = "Address already in use"
FEATURES_WANTED: dict[str, int] = {"transaction.version": 2, "group.version": 1, "metadata.version": 25}


class EmbeddedKafka:
    """Apache Kafka in KRaft mode, as child processes.

    `data_dir` is kept between runs, and None means a folder of its own that is thrown away; `brokers` is 1 or
    3; `overrides` are broker properties; `port` is the first broker's client port, 0 for any free one; `jvm` is
    small unless the figures of a larger one are wanted.
    Processes end with this one, also by kill -9, unless `guarded` is False. `start` raises SetupError with
    the end of the broker's output. Not thread-safe.
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        brokers: int = 1,
        overrides: Mapping[str, object] | None = None,
        port: int = 0,
        guarded: bool = True,
        jvm: Jvm = SMALL_JVM,
    ) -> None:
        if brokers not in (1, 3):
            raise ConfigError(f"A cluster of {brokers} brokers was asked for.", action="Ask for 1 or 3.")
        self.is_ephemeral = data_dir is None
        self.data_dir = _fresh_folder() if data_dir is None else Path(data_dir).absolute()
        life = _life(guarded=guarded, ephemeral=self.is_ephemeral)
        self.nodes = tuple(
            BrokerNode(number, self.data_dir / f"node-{number}", jvm=jvm, life=life)
            for number in range(1, brokers + 1)
        )
        self._overrides = dict(overrides or {})
        self._wanted_port = port
        self._ports: tuple[NodePorts, ...] = ()
        self._distribution: KafkaDistribution | None = None
        self._lock: int | None = None
        self.features: dict[str, int] = {}

    @property
    def bootstrap(self) -> str:
        """`host:port[,host:port…]` for clients. It is a bug to ask before the first start."""
        assert self._ports, "the cluster was not started"
        return ",".join(f"{HOST}:{ports.client}" for ports in self._ports)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the brokers' Java processes, in node order."""
        return tuple(node.pid for node in self.nodes)

    @property
    def log_dirs(self) -> tuple[Path, ...]:
        """The folders that hold the brokers' partitions, in node order."""
        return tuple(node.log_dir for node in self.nodes)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start every broker and wait until the cluster serves and its features are those wanted."""
        try:
            self._distribution = kafka_distribution()
            self._lock_folder()
            self._format()
            self._start_on_free_ports()
            self._check_features()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all brokers in order, and throw an ephemeral folder away. Harmless when nothing runs."""
        for node in self.nodes:  # all at once: the last ones could not leave a quorum that is gone
            node.ask_to_stop()
        for node in self.nodes:
            node.stop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self.is_ephemeral:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def restart_node(self, node_id: int) -> None:
        """Start a stopped or killed node on its old ports and data, and wait until it serves."""
        node = self.nodes[node_id - 1]
        self._start_node(node)
        self._wait_until_serving([node])

    def _lock_folder(self) -> None:
        """Keep a second cluster out of the folder for as long as a broker of this one runs, even without
        us.
        """
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = try_lock(self.data_dir / "in-use.lock")
        if self._lock is None:
            raise SetupError(
                f"{self.data_dir} is in use by another cluster.",
                action="Use that one (`stateflow status`), end it, or choose another folder.",
                data_dir=str(self.data_dir),
            )

    def _format(self) -> None:
        assert self._distribution is not None
        identity = self.data_dir / "cluster.json"
        if identity.exists():
            known = json.loads(identity.read_text())
            if known["brokers"] != len(self.nodes):
                raise ConfigError(
                    f"{self.data_dir} holds a cluster of {known['brokers']} brokers, not {len(self.nodes)}.",
                    action="Start it with its own number of brokers, or choose another folder.",
                )
        else:
            known = {"cluster_id": random_id(), "brokers": len(self.nodes)}
            draft = identity.with_suffix(".draft")
            draft.write_text(json.dumps(known))
            draft.replace(identity)
        for node in self.nodes:
            node.format(known["cluster_id"], self._distribution)

    def _start_on_free_ports(self) -> None:
        """Start all nodes, and again when another process takes a port between its choice and its use."""
        for attempt in range(1, PORT_ATTEMPTS + 1):
            self._ports = _choose_ports(len(self.nodes), self._wanted_port)
            for node in self.nodes:
                self._start_node(node)
            try:
                self._wait_until_serving(self.nodes)
                return
            except SetupError:
                taken = any(_PORT_TAKEN in node.output_tail(200) for node in self.nodes)
                if not taken or attempt == PORT_ATTEMPTS:
                    raise
                for node in self.nodes:
                    node.stop()

    def _start_node(self, node: BrokerNode) -> None:
        assert self._distribution is not None
        assert self._lock is not None, "the cluster is not running"
        settings = node_settings(node.node_id, self._ports, node.log_dir, self._overrides)
        node.start(settings, self._distribution, lock=self._lock)

    def _wait_until_serving(self, nodes: Sequence[BrokerNode]) -> None:
        """Wait until each of `nodes` answers and the metadata lists them (a fenced broker is not listed)."""
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        for node in nodes:
            while not _answers(self._ports[node.node_id - 1].client):
                self._fail_if_dead(node, deadline)
                time.sleep(POLL_SECONDS)
        from confluent_kafka.admin import AdminClient  # takes as long as all else that ends a broker

        client = AdminClient(
            {"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 100}
        )
        while not _lists(client, {node.node_id for node in nodes}):
            for node in nodes:
                self._fail_if_dead(node, deadline)
            time.sleep(POLL_SECONDS)

    def _fail_if_dead(self, node: BrokerNode, deadline: float) -> None:
        if node.is_running and time.monotonic() < deadline:
            return
        how = "took too long to start" if node.is_running else "ended while starting"
        raise SetupError(
            f"Broker {node.node_id} {how}. What it said:\n{node.failure_text()}\n",
            action="Read the cause above; is the disk full, or a setting wrong?",
            node=node.node_id,
        )

    def _check_features(self) -> None:
        self.features = finalized_features(HOST, self._ports[0].client)
        low = {name: self.features.get(name, 0) for name, level in FEATURES_WANTED.items()}
        low = {name: level for name, level in low.items() if level < FEATURES_WANTED[name]}
        if low:
            raise SetupError(
                f"The cluster in {self.data_dir} has old feature levels: {low}, wanted {FEATURES_WANTED}.",
                action="Use a new data folder, or raise the levels with kafka-features.sh.",
                features=self.features,
            )


def _choose_ports(brokers: int, first_client_port: int) -> tuple[NodePorts, ...]:
    """Ports that nobody listens on now, all different: held open together until all are known."""
    with ExitStack() as stack:
        chosen = []
        for number in range(brokers):
            client = _hold(stack, first_client_port + number if first_client_port else 0)
            chosen.append(NodePorts(client=client, controller=_hold(stack, 0)))
        return tuple(chosen)


def _hold(stack: ExitStack, port: int) -> int:
    """Bind `port` (0: any) until the stack unwinds; returns the port's number."""
    holder = stack.enter_context(socket.socket())
    if (
        port
    ):  # connections of an earlier broker that linger there do no harm, as they would do none to the broker
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind((HOST, port))
        holder.listen()  # with the option above, only listening tells whether somebody else does
    except OSError as error:
        raise SetupError(
            f"Port {port} of {HOST} cannot be used: {error.strerror}.",
            action="End what listens there, or choose another port (0 takes any free one).",
        ) from error
    return int(holder.getsockname()[1])


def _fresh_folder() -> Path:
    """A folder name that nobody uses yet; made at the start, removed at the end."""
    return Path(tempfile.gettempdir()).absolute() / f"stateflow-kafka-{uuid.uuid4().hex}"


def _life(*, guarded: bool, ephemeral: bool) -> NodeLife:
    if not guarded:
        return NodeLife.OUTLIVES_US
    return NodeLife.LEAVES_NOTHING if ephemeral else NodeLife.ENDS_WITH_US


def _answers(port: int) -> bool:
    try:
        return bool(finalized_features(HOST, port, timeout_seconds=2.0))
    except OSError:
        return False  # not listening yet; the caller watches the process and the clock


def _lists(client: AdminClient, node_ids: set[int]) -> bool:
    from confluent_kafka import KafkaException

    try:
        return node_ids <= set(client.list_topics(timeout=1.0).brokers)
    except KafkaException:
        return False  # not elected or not registered yet; the caller watches the processes and the clock
