"""`stateflow bench`: measure speed on this machine, beside others' at the same work. Only a checkout can."""

from __future__ import annotations

from stateflow.cli.laboratory import laboratory_command

command = laboratory_command("bench", "bench")
