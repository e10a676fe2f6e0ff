"""For tests of applications: the driver that runs them in memory, with a clock moved by hand."""

from stateflow.testing.driver import Row, TestDriver

__all__ = ["Row", "TestDriver"]
