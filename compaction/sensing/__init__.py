"""Looking at a live topic and its broker without changing anything."""
