"""``/metrics``: the figures of the whole installation, read from its database, and those of this process's requests."""
