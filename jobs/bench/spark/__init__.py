"""The queue on Spark, and the bare Delta statements beside it."""
