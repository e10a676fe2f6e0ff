"""Tables: the newest value per key, what it was before, and what it was at any event time."""
