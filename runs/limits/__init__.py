"""Limits of the provider, shared by all workers on all hosts: calls in flight, requests and tokens a minute.

``rules`` are what staff set, ``ledger`` is the arithmetic and the row that keeps it, ``gate`` holds back the calls
of one event loop.
"""
