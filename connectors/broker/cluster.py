"""A Kafka cluster of one or three brokers on this machine, for as long as a `with` block or a process lasts."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from stateflow.connectors.broker.distribution import KafkaDistribution, kafka_distribution
from stateflow.connectors.broker.features import finalized_features
from stateflow.connectors.broker.node import BrokerNode, random_id
from stateflow.connectors.broker.settings import HOST, NodePorts, node_settings
from stateflow.errors import ConfigError, SetupError

START_TIMEOUT_SECONDS = 90.0
PORT_ATTEMPTS = 4
POLL_SECONDS = 0.03
_PORT_TAKEN = "Address already in use"
FEATURES_WANTED: dict[str, int] = {"transaction.version": 2, "group.version": 1, "metadata.version": 25}


class EmbeddedKafka:
    """Apache Kafka in KRaft mode, as child processes.

    `data_dir` is kept between runs, and None means a folder of its own that is thrown away; `brokers` is 1 or 3;
    `overrides` are broker properties; `port` is the first broker's client port, 0 for any free one. Processes end
    with this one, also by kill -9, unless `guarded` is False. `start` raises SetupError with the end of the
    broker's output. Not thread-safe.
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        brokers: int = 1,
        overrides: Mapping[str, object] | None = None,
        port: int = 0,
        guarded: bool = True,
    ) -> None:
        if brokers not in (1, 3):
            raise ConfigError(f"A cluster of {brokers} brokers was asked for.", action="Ask for 1 or 3.")
        self._ephemeral = data_dir is None
        self.data_dir = Path(
            tempfile.mkdtemp(prefix="stateflow-kafka-") if data_dir is None else data_dir
        ).absolute()
        self.nodes = tuple(
            BrokerNode(number, self.data_dir / f"node-{number}", guarded=guarded)
            for number in range(1, brokers + 1)
        )
        self._overrides = dict(overrides or {})
        self._wanted_port = port
        self._ports: tuple[NodePorts, ...] = ()
        self._distribution: KafkaDistribution | None = None
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
            self._format()
            self._start_on_free_ports()
            self._check_features()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all brokers in order, and throw an ephemeral folder away. Harmless when nothing runs."""
        with ExitStack() as stack:
            if self._ephemeral:
                stack.callback(shutil.rmtree, self.data_dir, ignore_errors=True)
            for node in self.nodes:
                stack.callback(node.stop)

    def restart_node(self, node_id: int) -> None:
        """Start a node that was stopped or killed, on its old ports and data; returns when the cluster is whole."""
        self._start_node(self.nodes[node_id - 1])
        self._wait_until_serving(time.monotonic() + START_TIMEOUT_SECONDS)

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
            self.data_dir.mkdir(parents=True, exist_ok=True)
            known = {"cluster_id": random_id(), "brokers": len(self.nodes)}
            draft = identity.with_suffix(".draft")
            draft.write_text(json.dumps(known))
            draft.replace(identity)
        for node in self.nodes:
            node.format(known["cluster_id"], self._distribution)

    def _start_on_free_ports(self) -> None:
        """Start all nodes; another process may take a port between its choice and its use, so try again then."""
        for attempt in range(1, PORT_ATTEMPTS + 1):
            self._ports = _choose_ports(len(self.nodes), self._wanted_port)
            for node in self.nodes:
                self._start_node(node)
            try:
                self._wait_until_serving(time.monotonic() + START_TIMEOUT_SECONDS)
                return
            except SetupError:
                taken = any(_PORT_TAKEN in node.output_tail(200) for node in self.nodes)
                if not taken or attempt == PORT_ATTEMPTS:
                    raise
                for node in self.nodes:
                    node.stop()

    def _start_node(self, node: BrokerNode) -> None:
        assert self._distribution is not None
        settings = node_settings(node.node_id, self._ports, node.log_dir, self._overrides)
        node.start(settings, self._distribution)

    def _wait_until_serving(self, deadline: float) -> None:
        """Wait until every node answers and the metadata lists all of them (a fenced broker is not listed)."""
        for node, ports in zip(self.nodes, self._ports, strict=True):
            while not _answers(ports.client):
                self._fail_if_dead(node, deadline)
                time.sleep(POLL_SECONDS)
        client = AdminClient(
            {"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 100}
        )
        while not _lists_all(client, len(self.nodes)):
            for node in self.nodes:
                self._fail_if_dead(node, deadline)
            time.sleep(POLL_SECONDS)

    def _fail_if_dead(self, node: BrokerNode, deadline: float) -> None:
        if node.is_running and time.monotonic() < deadline:
            return
        how = "took too long to start" if node.is_running else "ended while starting"
        raise SetupError(
            f"Broker {node.node_id} {how}. The end of its output:\n{node.output_tail()}\n",
            action=f"Read the cause above; is {self.data_dir} in use by another broker, or the disk full?",
            node=node.node_id,
        )

    def _check_features(self) -> None:
        self.features = finalized_features(HOST, self._ports[0].client)
        low = {name: self.features.get(name, 0) for name, level in FEATURES_WANTED.items()}
        low = {name: level for name, level in low.items() if level < FEATURES_WANTED[name]}
        if low:
            raise SetupError(
                f"The cluster in {self.data_dir} was formatted with old feature levels: {low}, wanted {FEATURES_WANTED}.",
                action="Use a new data folder, or raise the levels with kafka-features.sh.",
                features=self.features,
            )


def _choose_ports(brokers: int, first_client_port: int) -> tuple[NodePorts, ...]:
    """Ports that nobody listens on now, all different: held open together until all are known."""
    with ExitStack() as stack:
        chosen = []
        for number in range(2 * brokers):
            holder = stack.enter_context(socket.socket())
            wanted = first_client_port if number == 0 else 0
            try:
                holder.bind((HOST, wanted))
            except OSError as error:
                raise SetupError(
                    f"Port {wanted} of {HOST} cannot be used: {error.strerror}.",
                    action="End what listens there, or choose another port (0 takes any free one).",
                ) from error
            chosen.append(holder.getsockname()[1])
        return tuple(NodePorts(*pair) for pair in zip(chosen[::2], chosen[1::2], strict=True))


def _answers(port: int) -> bool:
    try:
        return bool(finalized_features(HOST, port, timeout_seconds=2.0))
    except OSError:
        return False  # not listening yet; the caller watches the process and the clock


def _lists_all(client: AdminClient, brokers: int) -> bool:
    try:
        return len(client.list_topics(timeout=1.0).brokers) == brokers
    except KafkaException:
        return False  # not elected or not registered yet; the caller watches the processes and the clock
