"""Running an application: tasks, their commits, and the worker that hosts them."""
