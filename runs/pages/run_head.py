"""Whether the head of a run's page, which hardly changes from attempt to attempt, is as the reader's browser has it."""

from __future__ import annotations

import hashlib

from django.contrib.auth.models import AnonymousUser, User

from runs.pages.run_page import RunPage

_ELSEWHERE = frozenset(
    {
        # Attempts change these, and none is in the head but in what ``RunPage.limits`` says of it.
        "steps_passed", "attempt_count", "retry_count", "issues_low", "issues_medium", "issues_high", "issues_critical",
        "prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens", "reasoning_tokens", "cost",
        "unpriced_count", "crashes", "record_number", "revision", "lease_until", "suspect_since", "next_model",
        "is_counted",
        # What stays as it is, and may be long.
        "input", "input_schema", "model_settings", "metadata",
    }
)  # fmt: skip
"""Columns of a run and its flow that the head says nothing of. It may say something of any other."""
_PERMISSIONS = ("runs.change_run", "runs.add_run")


def name_head(page: RunPage, user: User | AnonymousUser) -> str:
    """A name for what the head of a run's page shows to ``user``: another one as soon as that may be something else."""
    run = page.run
    shown = (
        _list_columns(run),
        _list_columns(run.flow),
        run.version.number,
        run.started_by and run.started_by.get_username(),
        page.waiting,
        page.limits,
        page.is_unattended,
        page.is_readable,
        page.interrupted,
        [user.has_perm(permission) for permission in _PERMISSIONS],
    )
    return hashlib.blake2b(repr(shown).encode(), digest_size=6).hexdigest()


def _list_columns(row: object) -> list[tuple[str, object]]:
    return [(name, value) for name, value in vars(row).items() if name not in _ELSEWHERE and name != "_state"]
