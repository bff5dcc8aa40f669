"""The worker: claims queued runs and executes them, many at a time, in one event loop.

``tasks.drain`` is what queue messages name. One drain runs per slot of a host. The Run table is the truth: a message
only makes sure that a drain is running.
"""
