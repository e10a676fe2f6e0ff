"""`python -m stateflow.cli` is the `stateflow` command."""

from stateflow.cli.entry import main

if __name__ == "__main__":
    main()
