"""The log: topics, readers, writers and consumer groups, on a Kafka cluster or in memory."""
