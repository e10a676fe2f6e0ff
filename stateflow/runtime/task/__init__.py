"""One task: its wiring, what its operators may ask of it, and its commit."""
