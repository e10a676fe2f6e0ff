"""Metrics in Prometheus' text format: what an exporter beside a broker serves, read over HTTP and parsed."""

from __future__ import annotations

import math
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

from stateflow.errors import BrokerUnreachable, ConfigError

BYTES_MAX = 32 << 20
"""A longer answer is no broker's metrics."""
_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*$")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one metric."""

    name: str
    labels: dict[str, str]
    value: float


def scrape(url: str, timeout_seconds: float = 10.0) -> list[Sample]:
    """All samples that an endpoint serves now.

    Raises ``ConfigError`` for what is no http or https address, ``BrokerUnreachable`` when nothing usable answers.
    """
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError(f"{url} is no address of metrics.", action="Give http://HOST:PORT/metrics.")
    try:
        with urllib.request.urlopen(url, timeout=timeout_seconds) as answer:  # noqa: S310 - the scheme is checked
            body = answer.read(BYTES_MAX + 1)
    except (OSError, urllib.error.URLError, ValueError) as error:
        raise _unusable(url, str(error)) from error
    if len(body) > BYTES_MAX:
        raise _unusable(url, f"it serves more than {BYTES_MAX} bytes")
    found = list(parse(body.decode("utf-8", "replace")))
    if not found:
        raise _unusable(url, "it serves no metrics in Prometheus' text format")
    return found


def parse(text: str) -> Iterator[Sample]:
    """The samples of an exposition in text format; comments and lines that are no sample are passed over."""
    for line in text.splitlines():
        match = None if line.startswith("#") else _SAMPLE.match(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue  # no number: not a sample, and the format has no way to say what it is
        labels = {name: _unescaped(text) for name, text in _LABEL.findall(match[2] or "")}
        yield Sample(match[1], labels, value)


def _unescaped(text: str) -> str:
    return re.sub(r"\\.", lambda match: _ESCAPES.get(match[0], match[0]), text)


def canonical(sample: Sample) -> str:
    """Metric and ``name`` label without case or punctuation: exporters differ in how they write a bean's name."""
    return re.sub(r"[^a-z0-9]", "", f"{sample.name} {sample.labels.get('name', '')}".lower())


def finite(values: list[float]) -> list[float]:
    """The values that are numbers: a gauge without a value is NaN."""
    return [value for value in values if math.isfinite(value)]


def _unusable(url: str, why: str) -> BrokerUnreachable:
    return BrokerUnreachable(
        f"The metrics at {url} cannot be used: {why}.",
        action="Check the exporter's address and port, or leave --metrics-url out.",
        url=url,
    )
