"""What keeps writers of a table apart: threads, processes and JVMs."""
