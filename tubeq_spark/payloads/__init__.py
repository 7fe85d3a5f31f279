"""Checks and converts payloads, JSON and typed, of single tasks and of Arrow tables. No Spark."""
