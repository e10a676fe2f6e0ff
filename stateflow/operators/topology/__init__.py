"""The graph of an application, split into stages, each wired as a pipeline of steps."""
