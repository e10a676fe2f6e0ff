"""The log on a real Kafka cluster, through librdkafka."""

from stateflow.log.kafka.cluster import KafkaCluster, connect
from stateflow.log.kafka.settings import KafkaOptions

__all__ = ["KafkaCluster", "KafkaOptions", "connect"]
