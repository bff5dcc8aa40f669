"""Cancelling many runs, and running many runs again.

``requesting`` stores what is asked for, ``preview`` says beforehand what that comes to, ``working`` does it batch by
batch, ``effects`` is what happens to the runs of a batch, ``tasks`` what queue messages name. A web server works on an
action for a moment, which is enough for a page of runs; then it is passed from message to message, each of about a
second, so that sweeps and drains find a worker process in between.
"""
