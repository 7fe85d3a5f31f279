"""Payloads: JSON and typed ones, of rows and of Arrow tables, checked and converted. No Spark."""
