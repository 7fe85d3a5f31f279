"""Syncs the tables on local files, and repairs them after a power cut."""
