"""The commands for those who run ToolFlow: ``manage.py``, ``toolflow-manage`` and ``python -m toolflow_site``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db import DatabaseError, OperationalError, connections

from runs.audit_log.actor import act_as_command
from toolflow_site.environment import read_text
from toolflow_site.errors import find_remedy
from toolflow_site.production import find_static_problem

_NO_SUCH_TABLE = "42P01"


@register(Tags.staticfiles, deploy=True)
def check_static_files(**kwargs: Any) -> list[CheckMessage]:
    """Whether the static files were collected, and by this version. ``manage.py serve`` asks it first."""
    problem = find_static_problem(settings)
    return [Error(problem, id="toolflow.E001")] if problem else []


@register(Tags.database)
def check_connection(*, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Whether the databases that are asked about (``check --database default``) let us in; ``main`` says why not.

    Raises ``DatabaseError``: whatever else is to be checked in a database can't be either.
    """
    for name in databases or ():
        connections[name].ensure_connection()
    return []


def main() -> None:
    """Run the command that the arguments name.

    A wrong setting is one sentence and exit status 2. A database that can't be used is one sentence and exit status 1,
    where a command says nothing of its own, and so is a disk that is full or read-only; ``--traceback`` raises the
    error itself.
    """
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "toolflow_site.settings")
    act_as_command(sys.argv[1] if len(sys.argv) > 1 else "", caller=read_text("SUDO_USER"))
    try:
        execute_from_command_line(sys.argv)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe; what is left to be flushed when Python ends goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ImproperlyConfigured as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    except DatabaseError as error:
        if "--traceback" in sys.argv or not _is_unusable(error):
            raise
        # What may follow are hints of the driver's, and the same again for each address of the server.
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        remedy = find_remedy(error) or "Check DATABASE_URL; a new database wants `manage.py migrate` first."
        sys.stderr.write(f"The database can't be used: {reason}. {remedy} Use --traceback for details.\n")
        sys.exit(1)
    except OSError as error:
        remedy = find_remedy(error)
        if "--traceback" in sys.argv or not remedy:
            raise
        sys.stderr.write(f"{error.filename or 'A file'} can't be used: {error.strerror}. {remedy}\n")
        sys.exit(1)


def _is_unusable(error: DatabaseError) -> bool:
    """Whether an error is one of the database rather than of what it was asked."""
    if isinstance(error, OperationalError):
        return True
    # SQLite has no class of its own for a file that holds something else, nor PostgreSQL for tables that are not there.
    return "file is not a database" in str(error) or getattr(error.__cause__, "sqlstate", None) == _NO_SUCH_TABLE


if __name__ == "__main__":
    main()
