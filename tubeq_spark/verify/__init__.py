"""Proves or refutes, by the commits that a location still has, that its tasks were processed by the rules of their tubes."""
