"""Faults on purpose: simulated histories, planted bugs, and a memory log that is compared with Kafka."""
