"""A JSON column that gives back what was stored, key by key."""

from __future__ import annotations

import json
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper


class OrderedJSONField(models.JSONField):
    """JSON whose objects keep the order of their keys on every database.

    PostgreSQL's ``jsonb``, which Django takes, sorts keys. But a model writes its output in the order of its schema's
    properties, and a run that is resumed must send what it would have sent without a break: the order is content.
    So PostgreSQL holds the text, as SQLite does anyhow. The price: queries can't look inside.
    """

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        """``text`` on PostgreSQL, elsewhere what Django takes."""
        return "text" if connection.vendor == "postgresql" else super().db_type(connection)

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        """The value for the database driver."""
        if connection.vendor != "postgresql":
            return super().get_db_prep_value(value, connection, prepared)
        return json.dumps(value if prepared else self.get_prep_value(value), cls=self.encoder)
