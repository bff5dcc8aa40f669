"""The request of a model call as people read it: messages first, then the tool, then the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flows.engine import prompt
from flows.engine.json_values import parse_object
from flows.engine.model_api import MESSAGE_FIELDS, list_messages
from flows.engine.prompt import PromptSection, join_parts, render_issue
from runs.history.issue_links import IssueLink
from runs.history.json_lines import Listing, list_json, list_text, show_invisible

LONGEST_OUTPUT = 8_000
"""Characters that are shown of an earlier output in a message; it is shown whole in its own attempt."""
LONGEST_LINE = 2_000
"""Characters that are shown of what a message tells of one issue."""
MOST_LINES = 200
"""Issues of one earlier attempt that are shown in a message."""


_Links = Mapping[tuple[int, int], Sequence[IssueLink]]


@dataclass(frozen=True, slots=True)
class Told:
    """What the system message of a call must be by the history before it, and where its parts lead."""

    own: str
    """The step's own text."""
    sections: Sequence[PromptSection]
    links: _Links
    """Links to all issues of the attempts that the sections tell of, by step and number."""


@dataclass(frozen=True, slots=True)
class FeedbackLine:
    """What a message tells of one issue."""

    text: Listing
    link: IssueLink


@dataclass(frozen=True, slots=True)
class FeedbackAttempt:
    """What a message tells of one earlier attempt."""

    heading: str
    step: int
    number: int
    output: Listing
    lines: tuple[FeedbackLine, ...]
    more: int
    """How many further issues the message tells of."""


@dataclass(frozen=True, slots=True)
class FeedbackSection:
    """A section of a message that tells of earlier attempts."""

    heading: str
    note: str
    attempts: tuple[FeedbackAttempt, ...]


@dataclass(frozen=True, slots=True)
class ModelMessage:
    """One message; ``is_json`` says that its content was JSON and is laid out as such.

    Where it is known what wrote which part, ``own`` is the step's text (None if it has none) and ``sections`` follow.
    """

    role: str
    content: Listing
    is_json: bool
    own: Listing | None = None
    sections: tuple[FeedbackSection, ...] = ()
    is_unexpected: bool = False
    """It should tell of earlier attempts, but does not read as the history of today would."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request: its messages, its tools, all other fields, and the whole of it as JSON."""

    messages: tuple[ModelMessage, ...]
    tools: Listing | None
    settings: Listing
    raw: Listing = field(repr=False)


def read_model_request(request: Mapping[str, Any], told: Told | None = None) -> ModelRequest:
    """Take apart the stored body of a request, of either API.

    A system message is taken apart only if it is, to the letter, what ``told`` makes: headings alone prove nothing,
    since the step's own text may hold the same.
    """
    messages = tuple(_read_message(message, told) for message in list_messages(request))
    tools = request.get("tools")
    settings = {name: value for name, value in request.items() if name not in (*MESSAGE_FIELDS, "tools")}
    return ModelRequest(messages, list_json(tools) if tools else None, list_json(settings), list_json(dict(request)))


def _read_message(message: Mapping[str, Any], told: Told | None) -> ModelMessage:
    role, content = str(message.get("role", "")), message.get("content")
    parsed = _parse_object(content)
    if parsed is not None or not isinstance(content, str):
        return ModelMessage(role, list_json(parsed or content), parsed is not None)
    shown = list_text(content)
    if role != "system" or told is None or not told.sections:
        return ModelMessage(role, shown, is_json=False)
    if join_parts([told.own, *(section.text for section in told.sections)]) != content:
        return ModelMessage(role, shown, is_json=False, is_unexpected=True)
    own = list_text(told.own) if told.own else None
    return ModelMessage(role, shown, False, own, tuple(_read_section(section, told.links) for section in told.sections))


def _read_section(section: PromptSection, links: _Links) -> FeedbackSection:
    return FeedbackSection(section.heading, section.note, tuple(_read_attempt(one, links) for one in section.attempts))


def _read_attempt(told: prompt.FeedbackAttempt, links: _Links) -> FeedbackAttempt:
    attempt = told.attempt
    # The filter keeps the order, so that what is told is found from front to back.
    pairs = zip(attempt.issues, links[attempt.step, attempt.number], strict=True)
    own = [next(link for issue, link in pairs if issue is one) for one in told.issues[:MOST_LINES]]
    return FeedbackAttempt(
        heading=show_invisible(told.heading),
        step=attempt.step,
        number=attempt.number,
        output=list_text(told.output, max_characters=LONGEST_OUTPUT),
        lines=tuple(
            FeedbackLine(list_text(render_issue(issue), max_characters=LONGEST_LINE), link)
            for issue, link in zip(told.issues, own, strict=False)
        ),
        more=max(len(told.issues) - MOST_LINES, 0),
    )


def _parse_object(content: object) -> dict[str, Any] | None:
    if not isinstance(content, str) or not content.startswith("{"):
        return None
    try:
        return parse_object(content)
    except ValueError:
        return None
