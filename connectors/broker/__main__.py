"""`python -m stateflow.connectors.broker` fetches what the embedded broker needs, and the jars of more lock files."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from stateflow.connectors.broker.distribution import kafka_distribution
from stateflow.connectors.broker.jars import fetch, load_jar_set
from stateflow.errors import StateflowError


def main(lock_files: Sequence[str]) -> int:
    """Fill the caches; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        ready = kafka_distribution()
        for lock_file in lock_files:
            fetch(load_jar_set(Path(lock_file)))
    except StateflowError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(
        f"Kafka {ready.version} is ready, on Java {ready.java.major} ({ready.java.source})", file=sys.stderr
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
