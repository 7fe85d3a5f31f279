"""The tables of queues in memory, and the engine that reads and changes them."""
