"""``toolflow``: the REST API from a terminal or a script, on machines that need nothing else of ToolFlow.

It imports neither Django nor the engine: ``TOOLFLOW_URL`` and ``TOOLFLOW_TOKEN`` are all it knows of an installation.
"""
