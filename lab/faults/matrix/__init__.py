"""The crash matrix: real worker processes on a real broker, each failpoint struck by each fault."""
