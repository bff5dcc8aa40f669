"""The same for each of several things that a command names by their numbers: a refusal keeps it from no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from runs.client.errors import FAILED, REFUSED, SUCCEEDED, ClientError, UnreachableError, naming
from runs.client.printing import print_error, print_line

Answers = list[dict[str, Any]]


def ask_each(
    kind: str,
    numbers: Sequence[int],
    ask: Callable[[int], dict[str, Any]],
    tell: Callable[[int, dict[str, Any]], None],
) -> tuple[Answers, int]:
    """Ask for something for each ``kind`` of thing of these numbers, and ``tell`` of each answer as it comes.

    What is refused is told on standard error. Where the server can't answer, the rest is not tried. Gives the answers,
    and the exit status: ``FAILED`` if some were refused, ``REFUSED`` if all were. Raises ``ClientError`` where the only
    one is refused.
    """
    answers: Answers = []
    for place, number in enumerate(numbers, start=1):
        try:
            with naming(f"{kind} {number}"):
                answer = ask(number)
        except ClientError as error:
            if len(numbers) == 1:
                raise
            print_error(error, f"{kind} {number}: ")
            if isinstance(error, UnreachableError):
                if rest := numbers[place:]:
                    print_line(f"Not tried: {', '.join(map(str, rest))}.", is_error=True)
                break
        else:
            tell(number, answer)
            answers.append(answer)
    if len(answers) == len(numbers):
        return answers, SUCCEEDED
    return answers, FAILED if answers else REFUSED
