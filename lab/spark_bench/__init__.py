"""The Spark jobs beside the same work in plain PySpark, and beside Spark's own repartition of its state."""
