"""History in files: gzipped JSON Lines, complete enough to be put back.

``columns`` turns rows into JSON values and back, ``writing`` writes a file, ``reading`` checks one and gives its
records, ``restoring`` puts runs back with their numbers. The first line says what the file is, then each line holds a
version of a flow or a run with all its attempts, and the last one what there was, with a checksum over all before it.
"""

FORMAT = "toolflow-history"
VERSION = 1
"""Of the format. A file of a later one is refused."""
