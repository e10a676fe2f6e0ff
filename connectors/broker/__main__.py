"""`python -m stateflow.connectors.broker` fetches what the embedded broker needs."""

from __future__ import annotations

import logging
import sys

from stateflow.connectors.broker.distribution import kafka_distribution
from stateflow.errors import StateflowError


def main() -> int:
    """Fill the caches; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        ready = kafka_distribution()
    except StateflowError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(
        f"Kafka {ready.version} is ready, on Java {ready.java.major} ({ready.java.source})", file=sys.stderr
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
