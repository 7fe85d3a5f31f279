"""Locks that keep the writers of a table apart: threads, processes and JVMs."""
