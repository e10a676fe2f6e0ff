"""How much faster lost state is rebuilt by several jobs than by one, and whether it is the same."""
