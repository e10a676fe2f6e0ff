"""The compaction study: its plan, its runs, its figures and its page."""
