"""A real Apache Kafka broker as a child process: its jars, its Java, its files and its end."""

from stateflow.connectors.broker.cluster import EmbeddedKafka

__all__ = ["EmbeddedKafka"]
