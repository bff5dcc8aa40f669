"""Runs as files: what stands in them, and how they are sent while they are read."""
