"""Keys of rows as one parameter of a statement, however many they are.

They go from the database and back to it as it writes them: a number of each by itself would cost more here than the
rows cost there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db import connection
from django.db.models import BooleanField
from django.db.models.expressions import RawSQL

_AMONG = "{among}"


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of one column."""

    text: str
    """All of them, as the database reads them."""
    count: int

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Keys:
        """The keys with these numbers."""
        written = list(map(str, numbers))
        begin, end = "{}" if connection.vendor == "postgresql" else "[]"
        return cls(f"{begin}{','.join(written)}{end}", len(written))

    def find(self, statement: str, column: str) -> Keys:
        """The values of ``id`` that a SELECT gives of which ``{among}`` says that ``column`` is one of these."""
        if not self.count:
            return self
        if connection.vendor == "postgresql":
            collected = "COALESCE(array_agg(id), '{}')::text"
        else:
            collected = "json_group_array(id)"
        condition, parameters = self._write_condition(column)
        found = statement.replace(_AMONG, condition)
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {collected}, COUNT(id) FROM ({found}) AS found", parameters)  # noqa: S608  # constants
            return Keys(*cursor.fetchone())

    def execute(self, statement: str, column: str) -> None:
        """Execute a statement of which ``{among}`` says that ``column`` is one of these, if there are any."""
        if self.count:
            condition, parameters = self._write_condition(column)
            with connection.cursor() as cursor:
                cursor.execute(statement.replace(_AMONG, condition), parameters)

    def build_condition(self, column: str) -> RawSQL:
        """For ``filter``: that ``column``, given with its table, is one of these."""
        condition, parameters = self._write_condition(column)
        return RawSQL(condition, parameters, output_field=BooleanField())  # noqa: S611  # our own names

    def _write_condition(self, column: str) -> tuple[str, tuple[str]]:
        if connection.vendor == "postgresql":
            return f"{column} = ANY(%s::bigint[])", (self.text,)
        return f"{column} IN (SELECT value FROM json_each(%s))", (self.text,)  # noqa: S608  # our own names
