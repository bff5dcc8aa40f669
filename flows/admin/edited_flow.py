"""The flow's own form in the editor: valid only if the whole page is, and if it may be stored over what is there."""

from __future__ import annotations

from typing import Any

from django import forms

from flows.admin.conflicts import Conflict, find_conflict
from flows.admin.draft import FlowDraft
from flows.forms import FlowForm

_GONE = "This flow was deleted in the meantime. Your changes are still here; saving them creates a new flow."
_NO_REVISION = "The page does not say which version of the flow it edits. Reload it and make your changes again."


def _hidden_number() -> forms.IntegerField:
    return forms.IntegerField(
        widget=forms.HiddenInput,
        required=False,
        min_value=0,
        error_messages=dict.fromkeys(("invalid", "min_value"), _NO_REVISION),
    )


class EditedFlowForm(FlowForm):
    """The flow's own fields in the editor. Valid only if the whole flow is, with its steps and audits.

    The admin makes the formsets of the steps before it validates this form, and hangs them on its instance.
    """

    revision = _hidden_number()
    """Of the flow when the page was made."""
    base_version = _hidden_number()
    """The number of the latest version when the page was made."""
    note = forms.CharField(label="What changed?", required=False, max_length=500)

    draft: FlowDraft | None = None
    conflict: Conflict | None = None
    is_stored = True
    """Whether a valid page is going to be stored; if not, others may have saved the flow meanwhile."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk is not None:
            self.initial["revision"] = self.instance.revision
            self.initial["base_version"] = getattr(self.instance, "latest_number", None) or 0

    def full_clean(self) -> None:
        """Validate all forms of the page, the flow that they make up, and whether it may replace what is stored."""
        super().full_clean()
        steps = getattr(self.instance, "step_formset", None)
        if self.is_bound and steps is not None:
            self.draft = FlowDraft(self, steps)
            self.draft.check()
            if self.is_stored:
                self._check_page(self.draft)

    def is_valid(self) -> bool:
        """Whether the page can be stored."""
        return super().is_valid() and self.conflict is None

    def _check_page(self, draft: FlowDraft) -> None:
        # Nothing that is asked for comes after the note.
        if "note" not in self.data:
            self.add_error(None, "The page arrived incomplete. Reload it and try again.")
        elif not self.instance._state.adding:
            self._check_revision(draft)
        elif "revision" in self.data:
            self.add_error(None, _GONE)

    def _check_revision(self, draft: FlowDraft) -> None:
        revision, stored = self.cleaned_data.get("revision"), self.instance.revision
        if "revision" in self.errors or self.data.get("_overwrite") == str(stored):
            return
        if revision is None:
            self.add_error(None, _NO_REVISION)
        elif revision != stored:
            self.conflict = find_conflict(self, draft)
        elif lost := draft.list_lost_rows():
            self.add_error(None, f"The page arrived without “{lost[0]}”. Reload it and try again.")
