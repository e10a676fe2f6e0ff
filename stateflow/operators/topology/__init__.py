"""The graph of an application, cut into stages, each wired as a pipeline of steps."""
