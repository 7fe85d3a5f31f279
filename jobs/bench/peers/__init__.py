"""The queue beside queues on databases, by the same loads in the same run, without Spark.

`peer` says what a queue has to do, `loads` measures it, `choosing` finds the queues that are here. Each
of the others is one queue: a table of SQLite, a table of Postgres, procrastinate. That of this package
is in `native`.
"""
