"""What a form says about a bulk action: which runs it is for, and what is chosen for it."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID, uuid4

from django.http import QueryDict
from django.urls import reverse

from runs.bulk_actions.preview import MAX_COUNTED, BulkPreview, preview_chosen, preview_matching
from runs.bulk_actions.requesting import MOST_CHOSEN, MOST_STARTED
from runs.filters import find_newest_run
from runs.models import BulkKind
from runs.pages.exact_filters import read_exact_filters
from runs.pages.figures import format_count

LARGEST_NUMBER = 2**63 - 2
ALL, CHOSEN = "all", "chosen"


@dataclass(frozen=True, slots=True)
class BulkChoice:
    """Which runs are meant. ``problems`` has a sentence for all that makes no sense; then nothing must be done."""

    scope: str
    run_ids: tuple[int, ...]
    query: str
    """The filters of the list, also where runs were chosen: the way back leads there."""
    newest: int
    """Runs that begin later are not meant."""
    problems: tuple[str, ...]

    @property
    def is_all(self) -> bool:
        """Whether all runs that match are meant."""
        return self.scope == ALL

    @property
    def back_url(self) -> str:
        """The list that it was made in."""
        return reverse("runs:list") + (f"?{self.query}" if self.query else "")

    def preview(self, kind: BulkKind) -> BulkPreview:
        """What it would come to."""
        if self.is_all:
            return preview_matching(kind, self.query, newest=self.newest)
        return preview_chosen(kind, self.run_ids)


def read_choice(data: QueryDict) -> BulkChoice:
    """The choice that the form of the list, or the one that asks to confirm, has sent."""
    filters, problems = read_exact_filters(QueryDict(data.get("filters", "")))
    scope = ALL if data.get("scope") == ALL else CHOSEN
    run_ids: list[int] = []
    if scope == CHOSEN:
        # Where runs were chosen one by one, no filter decides.
        problems = ()
        for text in data.getlist("run"):
            number = _read_number(text)
            if number is None:
                problems = (*problems, f"“{text[:40]}” is not a run number.")
            else:
                run_ids.append(number)
        if not data.getlist("run"):
            problems = ("No run is chosen. Tick runs in the list first.",)
        elif len(set(run_ids)) > MOST_CHOSEN:
            problems = (f"{format_count(MOST_CHOSEN)} runs can be chosen one by one; for more, filter the list.",)
    newest = _read_number(data.get("newest", ""))
    return BulkChoice(
        scope=scope,
        run_ids=tuple(dict.fromkeys(run_ids)),
        query=filters.to_query(),
        newest=find_newest_run() if newest is None else newest,
        problems=problems[:10],
    )


@dataclass(frozen=True, slots=True)
class BulkForm:
    """What is typed when a bulk action is confirmed."""

    token: UUID
    """The same as often as the form is sent."""
    uses_live_version: bool
    most: str
    """How many runs may be started, as typed."""
    expected: int | None
    """How many runs the page that asked to confirm had counted; None if there may be more."""

    @classmethod
    def begin(cls, preview: BulkPreview) -> BulkForm:
        """An untouched form."""
        return cls(
            uuid4(),
            uses_live_version=False,
            most=str(preview.count if preview.is_exact else MAX_COUNTED),
            expected=preview.count if preview.is_exact else None,
        )

    @classmethod
    def from_post(cls, data: QueryDict) -> BulkForm | None:
        """A form as it was sent; None if it is not one of ours."""
        try:
            token = UUID(hex=data.get("token", ""))
        except ValueError:
            return None
        expected = _read_number(data.get("expected", ""))
        return cls(
            token,
            uses_live_version=data.get("version") == "live",
            most=data.get("most", ""),
            expected=None if expected is None else min(expected, MAX_COUNTED),
        )

    def read_most(self) -> int:
        """How many runs may be started. Raises ``ValueError`` with a sentence."""
        number = _read_number(self.most.strip())
        if number is None or not 1 <= number <= MOST_STARTED:
            raise ValueError(
                f"“{self.most[:40]}” is not how many runs may be started; write a number from 1 to "
                f"{format_count(MOST_STARTED)}."
            )
        return number


def _read_number(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) < 20
    return int(text) if is_number and int(text) <= LARGEST_NUMBER else None
