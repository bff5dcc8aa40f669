"""Flows: what may run, and the engine that runs it."""

__version__ = "0.2.0.dev0"
"""The version of ToolFlow."""
