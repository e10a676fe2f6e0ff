"""What every step is made of: rows, headers, marks, what it may ask of its task, and rows that fail."""
