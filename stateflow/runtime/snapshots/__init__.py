"""What is kept of running tasks: their part in savepoints, periodic images, and how far they let logs be trimmed."""
