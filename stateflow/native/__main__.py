"""`python -m stateflow.native`: build the native core where the package is installed."""

from __future__ import annotations

from stateflow.native.building import main

main()
