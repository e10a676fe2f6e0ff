"""Faults on purpose: simulated histories, planted bugs, the crash matrix, the memory log compared with Kafka."""
