"""Workers: the loop that takes tasks, calls a handler for each, and settles them."""
