"""The HTTP endpoint that Prometheus scrapes: ``/metrics`` of one worker process."""

from __future__ import annotations

import hmac
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from stateflow.clock import SystemClock
from stateflow.config import WorkerOptions
from stateflow.errors import ConfigError, SetupError, install_command
from stateflow.log.base import Cluster
from stateflow.runtime.worker.figures import FigureRequests
from stateflow.runtime.worker.metrics import BY_NAME, RestoreFigures, Sample, WorkerMetrics

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family
    from prometheus_client.registry import CollectorRegistry

_LOG = logging.getLogger(__name__)

PREFIX = "stateflow_"
_REQUEST_SECONDS_MAX = 10.0
"""A connection on which nothing is said for so long is closed."""
_App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class ServedMetrics:
    """What a worker is to be given so that the endpoint has something to tell."""

    requests: FigureRequests
    restores: RestoreFigures
    port: int


@contextmanager
def serving_metrics(app: str, options: WorkerOptions, cluster: Cluster) -> Iterator[ServedMetrics]:
    """Listen as the settings say while this is open. Raises ``ConfigError`` for an address that cannot be had."""
    clock = SystemClock()
    served = FigureRequests(clock), RestoreFigures()
    metrics = WorkerMetrics(app, cluster, *served, clock)
    token = options.metrics_token or None
    server = _listening(
        options.metrics_host, options.metrics_port, _guarded(_registry(metrics.samples), token)
    )
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    _LOG.info("Metrics of this worker: http://%s:%d/metrics", options.metrics_host, server.server_port)
    try:
        yield ServedMetrics(*served, server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        metrics.close()


class _Server(ThreadingMixIn, WSGIServer):
    """A thread per request, none of which keeps the process from ending."""

    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the client says who it is
        """A client that said nothing, or left amid its answer, is no concern of the worker's log."""
        _LOG.debug("A scrape from %s ended without an answer: %r", client_address, sys.exception())


class _Handler(WSGIRequestHandler):
    timeout = _REQUEST_SECONDS_MAX

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are nothing to write down."""
        _LOG.debug(format, *args)


def _listening(host: str, port: int, served: _App) -> WSGIServer:
    try:
        return make_server(host, port, served, _Server, _Handler)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"Nothing can listen for scrapes at {host}:{port}: {error}.",
            action="choose another metrics_port or metrics_host; `run --workers N` takes N ports in a row.",
            setting="metrics_port",
        ) from error


def _guarded(registry: CollectorRegistry, token: str | None) -> _App:
    """Serves ``/metrics`` alone, with a token to those who show it."""
    from prometheus_client import make_wsgi_app

    expose: _App = make_wsgi_app(registry)
    wanted = None if token is None else f"Bearer {token}".encode()

    def served(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        shown = str(environ.get("HTTP_AUTHORIZATION", "")).encode("latin-1", "replace")
        if wanted is not None and not hmac.compare_digest(shown, wanted):
            start_response("401 Unauthorized", [("WWW-Authenticate", "Bearer"), ("Content-Length", "0")])
            return []
        if environ["PATH_INFO"] != "/metrics":
            start_response("404 Not Found", [("Content-Length", "0")])
            return []
        return expose(environ, start_response)

    return served


class _Collector:
    """What Prometheus' library asks for families of samples."""

    def __init__(self, samples: Callable[[], Iterator[Sample]]) -> None:
        self._samples = samples

    def describe(self) -> Iterable[Family]:
        """Nothing is asked of the worker to register it."""
        return []

    def collect(self) -> Iterable[Family]:
        """The families of which there are any samples, in the table's order."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        found: dict[str, list[Sample]] = {}
        for sample in self._samples():
            found.setdefault(sample.metric, []).append(sample)
        for name, metric in BY_NAME.items():
            if name in found:
                kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
                family = kind(PREFIX + name, metric.text, labels=metric.labels)
                for sample in found[name]:
                    family.add_metric(sample.labels, sample.value)
                yield family


def _registry(samples: Callable[[], Iterator[Sample]]) -> CollectorRegistry:
    try:
        from prometheus_client.registry import CollectorRegistry
    except ImportError as error:
        raise SetupError(
            "prometheus_client is not installed, and the setting metrics_port asks for metrics.",
            action=f"Run `{install_command('metrics')}`, or set metrics_port to 0.",
        ) from error
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(samples))
    return registry
