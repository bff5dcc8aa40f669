"""The REST API: everything that the pages can do, for scripts. ``docs/api.md`` is its guide.

``view`` is what all endpoints share: who may ask, what may be sent, one shape of errors. Documents are built by
``runs.documents``; what endpoints do is done by the modules that the pages call.
"""
