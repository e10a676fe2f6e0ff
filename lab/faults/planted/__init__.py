"""Bugs on purpose, each of which the simulation has to find."""
