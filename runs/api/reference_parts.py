"""What the reference page is made of: operations by tag, their parameters and answers, and objects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.safestring import SafeString


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter, or a field of an object."""

    name: str
    place: str
    kind: SafeString
    is_required: bool
    description: SafeString
    choices: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What an operation answers with one status."""

    status: str
    kind: SafeString
    description: SafeString


@dataclass(frozen=True, slots=True)
class Operation:
    """What one method of one address does."""

    name: str
    method: str
    path: str
    summary: str
    description: SafeString
    parameters: Sequence[Field]
    body: SafeString
    answers: Sequence[Answer]
    problems: Sequence[Answer]
    curl: str
    """Empty for what the API itself sends."""
    can_be_tried: bool
    sample: str = ""
    """A body to begin with; empty if there is none."""

    @property
    def changes(self) -> bool:
        """Whether something is made or changed."""
        return self.method != "GET"


@dataclass(frozen=True, slots=True)
class Section:
    """The operations with one tag."""

    name: str
    description: SafeString
    operations: Sequence[Operation]

    @property
    def anchor(self) -> str:
        """What a link to it ends with."""
        return "tag-" + re.sub(r"\W+", "-", self.name.lower())


@dataclass(frozen=True, slots=True)
class Shape:
    """An object that operations take or give, or the values that a field may have."""

    name: str
    description: SafeString
    fields: Sequence[Field]
    choices: Sequence[str]
