"""Uploaded flow files: read and checked, with a message."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from django.http import HttpRequest

from flows.admin.access import has_permission
from flows.admin.posted_json import read_note
from flows.engine.spec import FlowSpec
from flows.flow_file import MAX_FILE_BYTES, FileProblem, FlowFileError, decode_text
from flows.models import FlowVersion
from flows.portability import LoadPlan, parse_flow_file

_SHOWN = 160
"""Characters of a line that are shown beside what is wrong with it."""


@dataclass(frozen=True, slots=True)
class PlacedProblem:
    """A problem of a file with the text of its line."""

    problem: FileProblem
    line: str


@dataclass(slots=True)
class Upload:
    """A flow file as it was sent, the note that goes with it, and what was found in it."""

    text: str = ""
    file_name: str = ""
    note: str = ""
    note_error: str = ""
    spec: FlowSpec | None = None
    problems: list[PlacedProblem] = field(default_factory=list)
    """What keeps the file from being imported; empty where ``spec`` is set."""

    @classmethod
    def read(cls, request: HttpRequest) -> Self:
        """What a form sent. A file that was chosen wins over text, which is what an earlier one held."""
        upload = cls(
            # Browsers end lines with CR LF, in whatever way the file had them.
            text=str(request.POST.get("text", "")).replace("\r\n", "\n"),
            file_name=str(request.POST.get("file_name", ""))[:100],
        )
        upload.note, upload.note_error = read_note(request)
        try:
            file = request.FILES.get("file")
            if file is not None:
                upload.text, upload.file_name = "", (file.name or "")[:100]
                # One more than is allowed: what is larger is not read to its end.
                upload.text = decode_text(file.read(MAX_FILE_BYTES + 1)).replace("\r\n", "\n")
            elif not upload.text.strip():
                raise FlowFileError([FileProblem("", "Choose a file, or paste the text of one.")])
            upload.spec = parse_flow_file(upload.text)
        except FlowFileError as error:
            lines = upload.text.split("\n")
            upload.problems = [PlacedProblem(problem, _find_line(lines, problem)) for problem in error.problems]
        return upload


def _find_line(lines: list[str], problem: FileProblem) -> str:
    if problem.line is None or problem.line > len(lines):
        return ""
    line = lines[problem.line - 1].strip()
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"


def find_obstacle(request: HttpRequest, plan: LoadPlan) -> str:
    """Why the user may not import what is planned; nothing if they may."""
    # With the permission to add a flow alone, a user could do nothing with it afterwards; the editor requires both too.
    wanted = {"flows.change_flow": "change flows"}
    if plan.flow is None:
        wanted = {"flows.add_flow": "add flows", **wanted}
    for permission, what in wanted.items():
        if not has_permission(request, permission):
            return f"You may not {what}: your account lacks “{permission}”."
    return ""


def describe_import(upload: Upload, version: FlowVersion, plan: LoadPlan) -> str:
    """What was done, in one sentence."""
    source = f"from “{upload.file_name}”" if upload.file_name else "from text"
    if plan.latest is not None and version.number == plan.latest.number:
        return f"Imported {source}: version {version.number} has this definition already."
    return f"Imported version {version.number} {source}."
