"""The studies as commands: `stateflow study <name>` is `lab/commands/<name>.py`."""
