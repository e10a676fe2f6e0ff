"""What is kept of running tasks: barriers for savepoints, periodic images, and how far they let logs be trimmed."""
