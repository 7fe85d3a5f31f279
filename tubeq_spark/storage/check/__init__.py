"""Finds damage in the tables of a location, and repairs it on local files: `Queue.check`."""
