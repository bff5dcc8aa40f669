"""Conditions of which a database is told how seldom they fail."""

from __future__ import annotations

from typing import Any

from django.db.models import BooleanField, Func


class Likely(Func):
    """A condition, such as a ``Q``, that holds for nearly all rows of the index that a query is to be answered by.

    SQLite keeps no statistics here and would rather read all rows that meet it off another index, and sort them.
    """

    template = "%(expressions)s"
    output_field = BooleanField()

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """See https://www.sqlite.org/lang_corefunc.html#likelihood."""
        return self.as_sql(compiler, connection, template="likelihood(%(expressions)s, 0.99)", **extra)
