"""Patterns in the records of a key: written, checked, and matched."""
