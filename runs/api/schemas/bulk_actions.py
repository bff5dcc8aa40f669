"""Bulk actions: what requests them, and what is answered of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from runs.api.filter_fields import FILTERS_SHAPE
from runs.api.schemas.base import WHOLE, Answer, Body, Count, Page, TextOrNull, Url
from runs.bulk_actions.requests import MAX_CHOSEN, MAX_STARTED
from runs.models import WorkState
from runs.models.bulk_action import MAX_NOTES
from runs.paging import MAX_NUMBER

KindName = Literal["cancel", "run_again"]
VersionName = Literal["same", "live"]
RunNumber = Annotated[int, Field(ge=1, lt=MAX_NUMBER), WHOLE]
Filters = Annotated[dict[str, Any], WithJsonSchema(FILTERS_SHAPE)]


class NewBulkAction(Body):
    """What is to be done to which runs: `runs` or `filters`, one of the two."""

    kind: KindName = Field(
        description="`cancel`: those that have not ended. `run_again`: those that have, each as a new run with the "
        "same input."
    )
    runs: Annotated[list[RunNumber], Field(min_length=1, max_length=MAX_CHOSEN)] | None = Field(
        None, description="The numbers of the runs."
    )
    filters: Filters | None = Field(
        None, description="All runs that match these filters, which are those of `listRuns`; `{}` means all runs."
    )
    newest: Annotated[int, Field(ge=0, lt=MAX_NUMBER), WHOLE] | None = Field(
        None, description="With `filters`: runs of a higher number are not meant."
    )
    version: VersionName | None = Field(
        None,
        description="For `run_again`: `same` (if left out) for the version that each run had, `live` for the live one.",
    )
    most: Annotated[int, Field(ge=1, le=MAX_STARTED), WHOLE] | None = Field(
        None,
        description=f"For `run_again` with `filters`: only so many of the runs, the newest; {MAX_STARTED:,} if it is "
        "left out.",
    )


class BulkNote(Answer):
    """Why a run was left out."""

    run: int = Field(description="The number of the run.")
    is_failure: bool = Field(
        validation_alias="failed", description="Whether it was not possible; else there was nothing to do."
    )
    sentence: str = Field(description="Why.")


class BulkAction(Answer):
    """Something that is done to many runs, and its progress."""

    id: int = Field(ge=1, description="The number of the bulk action.")
    kind: KindName = Field(description="What is done to the runs.")
    status: WorkState = Field(description="`waiting` and `working` go on; `stopped` is what a user wanted.")
    problem: TextOrNull = Field(description="Why it failed, in a sentence.")
    run_count: Count | None = Field(description="How many runs are meant. They are fixed when it is requested.")
    filters: Filters | None = Field(description="The filters that the runs were found by; null where they were chosen.")
    version: VersionName | None = Field(description="On which version runs are run again; null for `cancel`.")
    most: int | None = Field(description="The limit that was given for its runs.")
    label: str | None = Field(
        description="A label of the runs that it starts, by which a list finds them; null for `cancel`."
    )
    percent: int = Field(ge=0, le=100, description="The share of its runs that is behind.")
    done: Count = Field(description="Runs to which it was done.")
    skipped: Count = Field(description="Runs where there was nothing to do.")
    failed: Count = Field(description="Runs where it was not possible.")
    started_by: str | None = Field(description="The user who requested it.")
    created_at: datetime = Field(description="UTC.")
    started_at: datetime | None = Field(description="UTC; null until the first batch is done.")
    ended_at: datetime | None = Field(description="UTC; null while it goes on.")
    url: Url = Field(description="Where it is read.")
    page_url: Url = Field(description="Its page for people.")
    started_runs_url: Url | None = Field(description="The list of the runs that it started; null for `cancel`.")


class BulkActionPage(Page):
    """A page of bulk actions."""

    items: list[BulkAction] = Field(description="The newest first, without notes.")


class WholeBulkAction(BulkAction):
    """A bulk action with why runs were left out."""

    notes: list[BulkNote] = Field(description=f"The first {MAX_NOTES} runs that were left out, each with the reason.")
