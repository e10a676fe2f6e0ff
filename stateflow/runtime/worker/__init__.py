"""The loop around tasks: preparing topics, polling, commits, purging, and what a worker reports."""
