"""Histories drawn from a seed and played on the real worker, over simulated machines and a log in memory."""
