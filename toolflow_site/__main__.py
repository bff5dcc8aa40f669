"""``python -m toolflow_site``: the same as ``manage.py``, also where ToolFlow was installed as a package."""

from toolflow_site.command_line import main

main()
