"""A changelog state service for stateful streams on Kafka."""
