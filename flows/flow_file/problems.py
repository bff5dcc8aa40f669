"""What is wrong with a flow file, and where."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flows.engine.errors import ToolFlowError


@dataclass(frozen=True, slots=True)
class FileProblem:
    """One thing that is wrong in a file, where it is, and what would be right.

    ``path`` is a JSON pointer into the document, ``""`` for the whole of it or where the text is no document yet.
    ``line`` and ``column`` count from 1; None where no place in the text is to blame.
    """

    path: str
    message: str
    line: int | None = None
    column: int | None = None

    @property
    def place(self) -> str:
        """Where it is, in words: ``Line 12, column 5``, or nothing."""
        return "" if self.line is None else f"Line {self.line}, column {self.column}"

    def __str__(self) -> str:
        return ": ".join(part for part in (self.place, self.path, self.message) if part)


MOST_PROBLEMS = 100
"""Problems of one file that are told; of more their number is told."""


class FlowFileError(ToolFlowError):
    """A file holds no flow that can run. ``problems`` are in the order of the file."""

    def __init__(self, problems: Iterable[FileProblem]) -> None:
        found = sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0))
        if len(found) > MOST_PROBLEMS:
            more = FileProblem("", f"{len(found) - MOST_PROBLEMS:,} more problems follow.")
            found = [*found[:MOST_PROBLEMS], more]
        self.problems = tuple(found)
        super().__init__("\n".join(str(problem) for problem in self.problems))
