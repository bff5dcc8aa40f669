"""SELECTs that pages ask again and again, with other numbers each time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db import connections
from django.db.models import QuerySet


class PreparedSelect:
    """A query of values for some numbers, such as primary keys.

    To build a statement from a queryset takes several times as long as to execute it: so it is built once for each
    database, with stand-ins for the numbers.
    """

    def __init__(self, build: Callable[[Sequence[int]], QuerySet[Any, tuple[Any, ...]]], *, most: int = 0) -> None:
        """``build`` gives the queryset, a ``values_list``, for ``most`` numbers, which it may use for nothing else."""
        self._build = build
        self._most = most
        self._statements: dict[str, tuple[Any, str, tuple[Any, ...]]] = {}

    def fetch(self, numbers: Sequence[int] = (), *, using: str = "default") -> list[tuple[Any, ...]]:
        """The rows for these numbers, as the queryset would give them. Raises ``ValueError`` for more than ``most``."""
        if len(numbers) > self._most:
            raise ValueError(f"This statement is for {self._most} numbers, not for {len(numbers)}.")
        if self._most and not numbers:
            return []
        if using not in self._statements:
            self._statements[using] = self._prepare(using)
        compiler, sql, parameters = self._statements[using]
        # Any of them may stand twice: what is missing is filled up with one that is there.
        filled = [*numbers, *[numbers[-1]] * (self._most - len(numbers))] if numbers else []
        with connections[using].cursor() as cursor:
            cursor.execute(sql, [filled[~value] if self._is_stand_in(value) else value for value in parameters])
            rows = cursor.fetchall()
        return list(compiler.results_iter([rows], tuple_expected=True))

    def _prepare(self, using: str) -> tuple[Any, str, tuple[Any, ...]]:
        query = self._build([~index for index in range(self._most)]).using(using).query
        compiler = query.get_compiler(using)
        sql, parameters = compiler.as_sql()
        return compiler, sql, tuple(parameters)

    def _is_stand_in(self, value: Any) -> bool:
        return type(value) is int and -self._most <= value < 0
