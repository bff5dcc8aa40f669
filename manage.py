#!/usr/bin/env python3
"""ToolFlow's commands: ``python manage.py help`` lists them."""

import os
import sys

try:
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line
except ModuleNotFoundError:
    sys.exit("This Python has no Django. “make up” installs what ToolFlow needs; then use .venv/bin/python manage.py.")


def main() -> None:
    """Run the command that the arguments name. A wrong setting is one sentence and exit status 2."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "toolflow_site.settings")
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
