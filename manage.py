#!/usr/bin/env python3
"""ToolFlow's commands: ``python manage.py help`` lists them."""

import sys

try:
    from toolflow_site.__main__ import main
except ModuleNotFoundError:
    sys.exit("This Python has no Django. “make up” installs what ToolFlow needs; then use .venv/bin/python manage.py.")

if __name__ == "__main__":
    main()
