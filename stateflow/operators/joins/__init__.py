"""Joins of streams and tables: within an interval, with a table, by a foreign key."""
