"""Invented history of any size, to try or measure pages. The same seed gives the same history, but for its dates.

``courses`` invents what may happen in a run, a few dozen times for each version; ``storing`` stores runs of these.
"""

from runs.seeding.storing import seed_history

__all__ = ["seed_history"]
