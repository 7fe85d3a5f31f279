"""Finds and repairs damage in the tables of a location on local files: `Queue.check`."""
