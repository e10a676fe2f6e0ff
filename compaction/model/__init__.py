"""What compaction does to a log, predicted: in closed form, and key by key."""
