"""What each type of state costs: to update, to query, to move to other partitions and merge, to put into an image."""
