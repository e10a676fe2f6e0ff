"""Restore: planner, executor, progress; images of local state."""
