"""Measures a queue of this package beside the commits that it makes, and beside queues on databases.

`python -m bench` runs all groups, and prints one page of Markdown. A group is a module with a function `measure`; the
subjects of a comparison take turns, round by round, so a busy machine slows down all of them. Trust the ratios.
"""
