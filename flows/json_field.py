"""JSON columns that give back what was stored, key by key."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

if TYPE_CHECKING:
    _BinaryField = models.BinaryField[Any, Any]
else:  # Django's fields are generic for type checkers only.
    _BinaryField = models.BinaryField


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


class PackedJSONField(_BinaryField):
    """A JSON object that is kept compressed: for what is large, repetitive, and only ever read as a whole.

    Keys keep their order. Queries can't look inside.
    """

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        """The value for the database driver."""
        if value is not None:
            # A lone surrogate is not valid text, but here is not the place to refuse it.
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
            # The lowest level takes a third of the time of the default one, for a tenth more room.
            value = zlib.compress(text, level=1)
        return super().get_db_prep_value(value, connection, prepared)

    def from_db_value(self, value: Any, expression: Any, connection: BaseDatabaseWrapper) -> Any:
        """The value as it was before it was stored."""
        return None if value is None else json.loads(zlib.decompress(value).decode(errors="surrogatepass"))

    def value_to_string(self, obj: models.Model) -> str:
        """The value as JSON text, for ``dumpdata``."""
        return json.dumps(self.value_from_object(obj))

    def to_python(self, value: Any) -> Any:
        """The value of JSON text, as ``dumpdata`` wrote it; everything else stays as it is."""
        return json.loads(value) if isinstance(value, str) else value
