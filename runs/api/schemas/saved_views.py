"""Views of the list of runs that users keep under a name."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

from runs.api.filter_fields import FILTERS_SHAPE
from runs.api.schemas.base import DEFAULT_LIMIT, Answer, Body, Limit, Page, Query, RowNumber, Text, Url
from runs.models.saved_view import MAX_NAME_LENGTH, parse_name

Filters = Annotated[dict[str, Any], WithJsonSchema(FILTERS_SHAPE)]
"""Filters by name; their values are checked where a list is filtered by them."""


class NewView(Body):
    """Filters to be kept under a name."""

    name: Annotated[
        Text,
        AfterValidator(parse_name),
        WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_NAME_LENGTH}),
    ] = Field(description="Its name; each of your names once.")
    filters: Filters = Field(description="The filters, those of `listRuns`; at least one.")
    is_shared: bool = Field(
        False, description="Whether all users who may see runs see it; takes the permission to change runs."
    )


class SavedView(Answer):
    """Filters that a user keeps under a name."""

    id: int = Field(ge=1, description="The number of the view.")
    name: str = Field(description="Its name.")
    created_by: str = Field(description="The user who keeps it; only that user can delete it.")
    is_shared: bool = Field(description="Whether all users who may see runs see it.")
    filters: Filters = Field(description="The filters.")
    created_at: datetime = Field(description="UTC.")
    url: Url = Field(description="Where it is read.")
    page_url: Url = Field(description="Where people see the runs that match.")
    runs_url: Url = Field(description="The list of the runs that match.")


class SavedViewPage(Page):
    """A page of views."""

    items: list[SavedView] = Field(description="The newest first.")


class ViewPaging(Query):
    """Which page of views."""

    limit: Limit = DEFAULT_LIMIT
    before: RowNumber | None = Field(None, description="Only views that are older than the one of this number.")
    after: RowNumber | None = Field(None, description="Only views that are newer than the one of this number.")
