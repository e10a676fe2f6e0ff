"""The process of a worker: it starts, is told to stop, ends, and is started again by its supervisor."""
