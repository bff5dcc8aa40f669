"""What all models of the API are made of: bases for answers, bodies and queries, and their kinds of fields."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

from django.db.models import QuerySet
from django.urls import reverse
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic.json_schema import SkipJsonSchema

from runs.paging import MAX_NUMBER

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
"""Items of a page."""


_Row = TypeVar("_Row")


class Model(BaseModel):
    """Every model of the API."""


class Answer(Model):
    """What is answered. Fields that were not given are left out; they are declared with ``Omitted``.

    It is made of a mapping or a row; a field whose column has another name gives that as its ``validation_alias``. One
    that JSON calls by a word that Python keeps for itself, such as ``from``, has that as its ``serialization_alias``.
    """

    model_config = ConfigDict(
        from_attributes=True, validate_by_name=True, serialize_by_alias=True, ser_json_timedelta="float"
    )

    list_name: ClassVar[str] = ""
    """What its lists are called after, if that is not the class."""

    @classmethod
    def build(cls, row: Any, request: Any) -> Self:
        """The answer that a row or a mapping makes, with addresses on the host of ``request``."""
        return cls.model_validate(row, context=request)


class Body(Model):
    """What is sent: JSON values as what they are, no text for a number. Unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Query(Model):
    """The parameters of an address. Unknown ones are errors; those of type ``list`` may be repeated or have commas."""

    model_config = ConfigDict(extra="forbid")

    def filter(self, rows: QuerySet[Any, _Row], **lookups: str) -> QuerySet[Any, _Row]:
        """Those of ``rows`` that match the parameters that were sent, each by its lookup."""
        sent = {lookup: getattr(self, name) for name, lookup in lookups.items()}
        return rows.filter(**{lookup: value for lookup, value in sent.items() if value not in (None, [])})


class Nothing(Body):
    """An empty object, or no body at all."""


# ---------------------------------------------------------------------------------------------------------------------
# Fields of answers


def format_amount(amount: Decimal) -> str:
    """An amount of USD without an exponent."""
    return f"{amount:f}"


AMOUNT_PATTERN = r"^[0-9]+(\.[0-9]+)?$"

Amount = Annotated[
    Decimal, PlainSerializer(format_amount), WithJsonSchema({"type": "string", "pattern": AMOUNT_PATTERN})
]
"""USD, written as a decimal text."""
Url = Annotated[str, WithJsonSchema({"type": "string", "format": "uri"})]
Count = Annotated[int, Field(ge=0)]
USER_NAME = BeforeValidator(lambda user: user and user.get_username())
"""For what is read from a user, who may be gone."""
OR_NULL = BeforeValidator(lambda text: text or None)
"""For a column whose empty text stands for nothing."""
TextOrNull = Annotated[str | None, OR_NULL]
Omitted = SkipJsonSchema[None]
"""Beside the type of a field that may be left out: ``usage: Usage | Omitted = None``."""


_Item = TypeVar("_Item", bound=Answer)


def link(name: str) -> BeforeValidator:
    """Makes an address, on the host of the request that is the context, of what the field is read from.

    It is that of the view ``name``, for a text with this query, for a number with it as its argument; None stays None.
    """

    def build_address(value: Any, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        request: Any = info.context
        if isinstance(value, str):
            address: str = request.build_absolute_uri(f"{reverse(name)}?{value}")
        else:
            address = request.build_absolute_uri(reverse(name, args=[value]))
        return address

    return BeforeValidator(build_address)


class Page(Answer, Generic[_Item]):
    """A page of a list. The schema of ``Page[Run]`` is called ``RunPage``."""

    model_config = ConfigDict(json_schema_extra={"description": "A page of a list."})

    next: Url | None = Field(description="Address of the next page; null on the last one.")
    previous: Url | None = Field(description="Address of the page before; null on the first one.")
    items: list[_Item] = Field(description="In the order of the list.")

    @classmethod
    def model_parametrized_name(cls, params: tuple[Any, ...]) -> str:
        """The name of the schema: that of the items without what distinguishes them from a single one."""
        return f"{params[0].list_name or params[0].__name__}Page"


# ---------------------------------------------------------------------------------------------------------------------
# Fields of bodies


def _parse_whole(value: Any) -> Any:
    # JSON knows one kind of numbers: 2.0 is whole.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def refuse_unstorable(text: str) -> str:
    if found := re.search("[\x00\ud800-\udfff]", text):
        raise ValueError(f"This holds U+{ord(found[0]):04X}, which can’t be stored.")
    return text


WHOLE = BeforeValidator(_parse_whole)
"""Comes last: ``Annotated[int, Field(ge=1), WHOLE]``. A bound outside of it would be missing from the schema."""
Whole = Annotated[int, WHOLE]
Positive = Annotated[int, Field(ge=1), WHOLE]
Text = Annotated[str, AfterValidator(refuse_unstorable)]
"""Text that can be stored."""
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(refuse_unstorable)]
"""What something is found by."""
FreeObject = Annotated[dict[Any, Any], WithJsonSchema({"type": "object", "additionalProperties": True})]
"""A JSON object with anything in it. What can't be stored is found where it is stored."""

# ---------------------------------------------------------------------------------------------------------------------
# Parameters of addresses


def _parse_flag(text: Any) -> Any:
    # Pydantic takes “yes”, “1” and others as well.
    if text not in ("true", "false", True, False):
        raise ValueError("This must be true or false.")
    return text


def _parse_number(text: Any) -> Any:
    if isinstance(text, str) and not re.fullmatch(r"[0-9]{1,4000}", text, re.ASCII):
        raise ValueError("This must be a whole number.")
    return text


def _bound(number: int) -> int:
    # A larger number than any row has bounds nothing.
    return min(number, MAX_NUMBER)


Flag = Annotated[bool, BeforeValidator(_parse_flag)]
NUMBER = BeforeValidator(_parse_number)
"""As ``WHOLE``, for parameters."""
RowNumber = Annotated[int, Field(ge=1), AfterValidator(_bound), NUMBER]
"""The number of a row, such as a run."""
Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT, description="How many items a page has at most."), NUMBER]


def _require_day(text: Any) -> Any:
    # Pydantic takes times and seconds as well. No column has rows of other years; dates near the ends of the calendar
    # have no span before them.
    if isinstance(text, str) and not re.fullmatch(r"(19[7-9]|2[0-9][0-9])[0-9]-[0-9]{2}-[0-9]{2}", text, re.ASCII):
        raise ValueError("This must be a day such as 2026-11-21.")
    return text


Day = Annotated[date, BeforeValidator(_require_day)]


class Paging(Query):
    """Which page of a list: subclass it and declare ``before`` and ``after``, in this order."""

    limit: Limit = DEFAULT_LIMIT

    @field_validator("after", check_fields=False)
    @classmethod
    def _check_one(cls, after: Any, info: ValidationInfo) -> Any:
        if info.data.get("before") is not None:
            raise ValueError("“before” and “after” can’t be combined.")
        return after


class RowPaging(Paging):
    """Which page of a list of numbered things."""

    before: RowNumber | Omitted = Field(
        None, description="Only what came before the one of this number. Follow `next` and `previous` instead."
    )
    after: RowNumber | Omitted = Field(
        None, description="Only what came after the one of this number. Follow `next` and `previous` instead."
    )
