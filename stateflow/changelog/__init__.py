"""What stands in a changelog beside state."""
