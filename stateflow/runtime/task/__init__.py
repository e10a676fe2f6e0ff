"""One task: its wiring, what its operators may ask of it, its commit, and how it takes over and replays."""
