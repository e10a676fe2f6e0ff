"""The commit protocol as a model that is searched whole."""
