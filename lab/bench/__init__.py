"""Benchmarks behind `stateflow bench`: the same work by this project and by its peers, side by side."""
