"""What is said of stored history, computed without a database."""
