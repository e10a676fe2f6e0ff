"""What an application computes: verbs, windows, aggregates, typed operators, and the graph cut into stages."""
