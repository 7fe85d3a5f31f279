"""Parts of `jobs/benchmark.py`: what it measures, in which turns, and the tables that it prints.

`command` is the command line, `plan` what shall be measured, `run` does it on a `side`: a queue on one
engine, and beside it the bare calls that do the same on a bare table (the floor), in `spark` and
`native`. `subjects` are the queue's verbs, `measure` lets them take turns; `subqueues`, `processes` and
`starting` measure loads of their own, `peers` other queues beside this one. `results` keeps what came
of it, `goals` what was aimed at, and `report` shows both.
"""
