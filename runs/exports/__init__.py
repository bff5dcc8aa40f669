"""Runs as files: what is in them, and how they are sent while they are read."""
