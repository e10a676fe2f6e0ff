"""The process around tasks: preparing topics, the poll loop, lag, purging, the supervisor of several workers."""
