"""Queries and statements over Arrow tables, by Arrow's kernels."""
