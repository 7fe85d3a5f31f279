"""Proves or refutes, by the commits that a location still has, that its tubes were worked off by their rules."""
