"""ToolFlow's commands for those who run it: ``manage.py``, ``toolflow-manage`` and ``python -m toolflow_site``."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line

from runs.trail.acting import act_as_command
from toolflow_site.environment import read_text
from toolflow_site.production import find_static_problem


@register(Tags.staticfiles, deploy=True)
def check_static_files(**kwargs: Any) -> list[CheckMessage]:
    """Whether the static files were collected, and by this version. ``manage.py serve`` asks it first."""
    problem = find_static_problem(settings)
    return [Error(problem, id="toolflow.E001")] if problem else []


def main() -> None:
    """Run the command that the arguments name. A wrong setting is one sentence and exit status 2."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "toolflow_site.settings")
    act_as_command(sys.argv[1] if len(sys.argv) > 1 else "", caller=read_text("SUDO_USER"))
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
