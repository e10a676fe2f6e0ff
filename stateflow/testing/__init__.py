"""For tests of applications: the driver that runs them in memory, with a clock moved by hand."""

from stateflow.testing.driver import TestDriver

__all__ = ["TestDriver"]
