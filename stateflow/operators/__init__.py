"""What an application computes: verbs, windows, aggregates, typed operators, and the graph split into stages."""
