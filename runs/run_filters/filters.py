"""What a list of runs is filtered by, as values and as a query string."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import date
from decimal import Decimal
from typing import Any, Self
from urllib.parse import urlencode

PARAMETERS: Mapping[str, str] = {
    "q": "search",
    "flow": "flow",
    "version": "version",
    "status": "status",
    "severity": "severity",
    "audit": "audit",
    "code": "code",
    "model": "model",
    "label": "label",
    "from": "since",
    "to": "until",
    "cost": "cost",
    "tokens": "tokens",
    "by": "started_by",
}
"""Fields of ``RunFilters`` by their names in addresses."""


@dataclass(frozen=True, slots=True)
class RunFilters:
    """What runs are asked for; an empty value or None asks for nothing."""

    flow: str = ""
    """Its name."""
    status: str = ""
    """One status, or several with commas between them: runs that have one of these."""
    version: int | None = None
    """Its number within the flow; nothing without one."""
    severity: str = ""
    """Runs with an issue of at least this severity."""
    audit: str = ""
    code: str = ""
    """Of an issue."""
    model: str = ""
    label: str = ""
    since: date | None = None
    """The first day on which runs were created, in the active time zone."""
    until: date | None = None
    """The last such day."""
    cost: Decimal | None = None
    """US dollars; runs that cost more."""
    tokens: int | None = None
    """Runs that used more."""
    started_by: str = ""
    """A user name."""
    search: str = ""
    """Words to look for, or the number of a run: ``1285`` or ``#1285``."""

    @property
    def statuses(self) -> tuple[str, ...]:
        """The statuses that are asked for; none means all."""
        return tuple(self.status.split(",")) if self.status else ()

    @property
    def is_empty(self) -> bool:
        """Whether all runs are asked for."""
        return not any(True for _ in self.list_set())

    def list_set(self) -> Iterator[tuple[str, Any]]:
        """The filters that are set: their names in addresses, and their values."""
        for parameter, name in PARAMETERS.items():
            value = getattr(self, name)
            if value is not None and value != "":
                yield parameter, value

    def to_query(self) -> str:
        """The filters as a query string, without those that are empty."""
        return urlencode({parameter: write_value(value) for parameter, value in self.list_set()})

    def without(self, *parameters: str) -> Self:
        """The filters without those of these names in addresses. A version goes with its flow."""
        names = {PARAMETERS[parameter] for parameter in parameters}
        if "flow" in names:
            names.add("version")
        defaults: dict[str, Any] = {field.name: field.default for field in fields(self) if field.name in names}
        return replace(self, **defaults)


def write_value(value: Any) -> str:
    """The value of a filter as it stands in addresses and fields."""
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return value.isoformat() if isinstance(value, date) else str(value)
