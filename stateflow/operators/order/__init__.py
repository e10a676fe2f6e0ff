"""Records of a key in the order of event time, and each of them once."""
