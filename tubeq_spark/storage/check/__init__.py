"""Looks for damage in the tables of a location on local files, and mends it: `Queue.check`."""
