"""``toolflow``: the REST API from a terminal or a script, on machines that need nothing else of ToolFlow.

Nothing here imports Django or a setting: ``TOOLFLOW_URL`` and ``TOOLFLOW_TOKEN`` are all it knows of an installation.
Exit status: 0 what was asked for is done, and a run that was waited for succeeded; 1 it failed, or some of several
things could not be done; 2 the run errored or was cancelled; 3 it could not be done: wrong
use, the server refused or could not be reached, or results could not be written.
"""
