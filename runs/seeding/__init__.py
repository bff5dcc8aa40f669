"""Invented history of any size: to try pages with, and to measure them.

``scripts`` invents a few hundred courses that runs may take, ``flows`` makes the flows they are runs of, ``writing``
stores as many runs as wanted. The same seed gives the same history, apart from its dates.
"""

from runs.seeding.writing import seed_history

__all__ = ["seed_history"]
