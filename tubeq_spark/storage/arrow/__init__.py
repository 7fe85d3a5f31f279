"""Runs queries and statements over Arrow tables, by Arrow's kernels."""
