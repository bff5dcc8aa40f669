"""The REST API: everything that the pages can do, for scripts. ``docs/api.md`` is its guide.

``base`` is what all endpoints share: who may ask, what may be sent, one shape of errors. Each body, query and answer is
one pydantic model, which is its schema as well; ``runs.documents`` reads runs from the database as such models.
"""
