"""Invented history of any size, to try or measure pages. The same seed gives the same history, but for its dates.

``simulation`` runs flows on the simulated model in invented time. ``cases`` says what runs of the examples are about;
``planted`` has a flow with known truths. ``storing`` stores runs that take these courses, and removes them.
"""

from runs.seeding.storing import SampleError, fetch_sample_flows, remove_samples, seed_history

__all__ = ["SampleError", "fetch_sample_flows", "remove_samples", "seed_history"]
