"""The `stateflow` command: one noun per file, each loaded only when it is asked for."""
