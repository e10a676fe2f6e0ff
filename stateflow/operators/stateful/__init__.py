"""Nodes of the verbs that keep state per key, without windows."""
