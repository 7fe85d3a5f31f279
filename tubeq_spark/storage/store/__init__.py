"""The files of a table by their names: local files, object stores, and a dictionary in memory."""
