"""How long runs are kept, and what is deleted after that; see ``docs/retention.md``."""
