"""Cancelling many runs, and running many runs again.

``requests`` fixes the runs that are meant, previews them and stores the request; ``work`` does it batch by batch.
"""
