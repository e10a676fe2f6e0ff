"""The settings of compaction as data: which exist, what is legal, and one topic's choice of them."""
