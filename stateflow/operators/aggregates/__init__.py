"""Folding values per key: what can be folded, and how it is done for many keys at once."""
