"""The queue without Spark, and the bare calls of `deltalake` beside it."""
