"""What is on the disk of tables on local files, and what is done after a power cut."""
