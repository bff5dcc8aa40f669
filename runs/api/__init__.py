"""The REST API: everything that the pages can do, for scripts. ``docs/api.md`` is its guide.

``base`` is what all endpoints share: who may ask, what may be sent, one shape of errors. Bodies and answers are the
models of ``schemas``; ``runs.documents`` reads runs from the database as these models.
"""
