"""Reading state from outside the worker that owns it."""
