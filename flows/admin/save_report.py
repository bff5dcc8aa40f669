"""What a save of the editor did, for the page that comes next and for the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django.urls import reverse
from django.utils.html import format_html

from flows.admin.conflicts import LimitChange
from flows.models import Flow, FlowVersion


@dataclass(frozen=True, slots=True)
class SaveReport:
    """What became of a flow that was saved, in words."""

    flow: Flow
    version: FlowVersion
    """The latest one, whether this save made it or not."""
    is_new: bool
    """Whether this save made the version."""
    limits: list[LimitChange]
    """What else it changed."""
    made_live: bool
    """Whether somebody asked for the version to be live, and it was not."""
    note: str
    """What was typed about the change."""

    def tell(self) -> str:
        """One or two sentences for the editor; HTML if they hold a link."""
        if self.is_new:
            saved = f"Saved as version {self.version.number}"
        elif self.limits:
            saved = f"Saved. The definition is still that of version {self.version.number}"
        else:
            saved = f"Nothing changed since version {self.version.number}"
        if self.flow.is_archived:
            return f"{saved}. The flow is archived: no new runs can be started."
        live = self.flow.live_version
        if live is not None and live.pk == self.version.pk:
            return f"{saved}, which is live: new runs use it."
        return format_html(
            '{}. New runs still use version {}. <a href="{}">Make version {} live</a>',
            saved,
            live.number if live else None,
            reverse("admin:flows_flow_make_live", args=[self.flow.pk, self.version.number]),
            self.version.number,
        )

    def tell_lost_note(self) -> str | None:
        """A sentence about a note that no version took; None if there is none."""
        if not self.note or self.is_new:
            return None
        return f"Your note “{self.note}” was not stored: notes belong to versions, and this save created none."

    def write_log(self) -> str:
        """What the log says; empty if nothing changed."""
        return " ".join(self._list_entries())

    def _list_entries(self) -> Iterator[str]:
        if self.is_new:
            yield f"Saved as version {self.version.number}."
        if self.limits:
            yield f"Changed limits: {', '.join(map(str, self.limits))}."
        if self.made_live:
            yield f"Made version {self.version.number} live."
