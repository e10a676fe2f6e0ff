"""Job templates: each a file that `spark-submit` runs as it is, and that `stateflow jobs new` copies."""
