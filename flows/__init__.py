"""Flows: what may run, and the engine that runs it."""

__version__ = "0.1.0"
"""The version of ToolFlow."""
