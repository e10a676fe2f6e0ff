"""A restore newest first in a process of its own, for a test that has it killed at a failpoint.

    python -m tests.unit.scale.early_child SEED STATE_DIR

The log is in memory, so it is made anew, from the same seed as the test's.
"""

from __future__ import annotations

import sys
from pathlib import Path

from stateflow.failpoints import arm_from_environment
from tests.unit.scale.early_site import EarlySite

COMMITS = 40


def main(seed: int, state_dir: Path) -> None:
    """Restore all of it, unless something strikes."""
    site = EarlySite(seed)
    site.commits(COMMITS)
    arm_from_environment()
    site.early(state_dir).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
