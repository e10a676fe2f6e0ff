"""Changing the number of partitions: plan, move, audit, and the life of a generation."""
