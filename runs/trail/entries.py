"""Writing an entry of the trail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.db import models

from runs.models import TrailEntry
from runs.trail.actions import TrailAction
from runs.trail.asking import is_told_already, read_asking

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser

LONGEST_NAME, MAX_LABEL_LENGTH, LONGEST_ID = 150, 200, 64


def leave_trail(
    *,
    action: TrailAction,
    about: models.Model | None = None,
    kind: str = "",
    label: str = "",
    details: Mapping[str, Any] | None = None,
    actor: AbstractBaseUser | None = None,
) -> None:
    """Write down that whoever asks now did ``action``, in the transaction that is open.

    ``about`` is the row that it was done to; ``kind`` and ``label`` say what it is called where its model and its text
    don't. ``details`` are a few figures and names: no inputs, no outputs, no secrets. ``actor`` is for what is done for
    somebody who doesn't ask.
    """
    if is_told_already():
        return
    asking = read_asking()
    actor = actor or asking.user
    TrailEntry.objects.create(
        actor_id=actor.pk if actor else None,
        actor_name=clean_text(actor.get_username() if actor else asking.name, LONGEST_NAME),
        token_name=asking.token_name,
        address=asking.address,
        action=action,
        object_kind=kind or (about._meta.model_name or "" if about else ""),
        object_id=str(about.pk)[:LONGEST_ID] if about else "",
        # A flow that is loaded from a file has its name before it has its title.
        object_label=clean_text(label or (str(about) or getattr(about, "name", "") if about else ""), MAX_LABEL_LENGTH),
        details=dict(details or {}),
        request_id=asking.request_id,
    )


def clean_text(text: str, length: int) -> str:
    """A name as a column can hold it: without NUL and lone surrogates, and not longer than ``length``."""
    return text.replace("\0", "").encode(errors="replace").decode()[:length]
