"""From a partition assigned to a task that runs: fence, decide the recovery point, restore, replay."""
