"""Everything that needs Spark, and nothing else does: sessions, jobs and the runner."""
