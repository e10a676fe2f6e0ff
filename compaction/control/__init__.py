"""Changing a topic: validated, journalled, undone, waited for, and kept within its objective."""
