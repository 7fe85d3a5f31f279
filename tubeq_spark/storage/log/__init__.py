"""The log of a Delta table over a store, for all storages."""
