"""Local stores: ordered maps of bytes, changed one epoch at a time."""
