"""Parts of `jobs/benchmark.py`: what it measures, in which turns, and the tables that it prints.

`command` is the command line, `plan` what shall be measured, `run` does it. `subjects` are the two
ways to do the same: the queue's verbs, and in `floor` the bare Delta statements. `measure` lets
them take turns, `report` shows what came of it.
"""
