"""Copies of tasks' state on other workers, and which worker runs what: the warmest copy wins."""
