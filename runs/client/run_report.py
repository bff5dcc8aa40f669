"""A run and its attempts on a terminal: each output with the issues of that very output."""

from __future__ import annotations

import json
from typing import Any

from runs.client.printing import (
    NONE,
    format_cost,
    format_count,
    format_issue_counts,
    format_plural,
    format_seconds,
    format_time,
    paint,
    print_line,
    print_table,
)


def print_run(run: dict[str, Any]) -> None:
    """What happened, and a line for each attempt."""
    simulated = " (simulated)" if run["is_simulated"] else ""
    title = f"Run {run['id']} of “{run['flow']}”, version {run['version']}{simulated}: "
    print_line(title, paint(run["status"]), f". {run['end_sentence'] or run['waiting_for'] or ''}".rstrip())
    usage = run["usage"]
    figures = [
        f"{run['steps_passed']} of {run['step_count']} steps passed",
        format_plural(run["attempt_count"], "attempt"),
        format_plural(usage["total"], "token"),
        format_cost(usage["cost"]),
        format_seconds(run["duration"]),
        f"created {format_time(run['created_at'])}",
    ]
    print_line(", ".join(figure for figure in figures if figure != NONE))
    if run["labels"]:
        print_line("Labels: ", ", ".join(run["labels"]))
    print_line(run["page_url"])
    rows = [
        (
            f"{attempt['step']}.{attempt['number']}",
            step["name"],
            attempt["outcome"] or "running",
            _count_issues(attempt),
            attempt["model"] or NONE,
            format_count((attempt["usage"] or {}).get("total")),
            format_cost((attempt["usage"] or {}).get("cost")),
            format_seconds(attempt["duration"]),
        )
        for step in run["steps"][1:]
        for attempt in step["attempts"]
    ]
    if rows:
        print_line("")
        columns = ("ATTEMPT", "STEP", "OUTCOME", "ISSUES", "MODEL", "TOKENS", "COST", "DURATION")
        print_table(columns, rows, right=("TOKENS", "COST", "DURATION"))


def print_attempt(
    name: str, attempt: dict[str, Any], *, has_output: bool = True, has_issues: bool = True, is_error: bool = False
) -> None:
    """An attempt of the step of that name, with its output and its issues."""
    print_line("", is_error=is_error)
    outcome = paint(attempt["outcome"] or "running")
    print_line(f"{name}, attempt {attempt['number']}: ", outcome, is_error=is_error)
    if attempt["error"]:
        print_line("  ", attempt["error"].get("message", ""), is_error=is_error)
    if attempt["failure_reason"]:
        print_line("  ", attempt["failure_reason"], is_error=is_error)
    if has_output and attempt["output"] is not None:
        for line in json.dumps(attempt["output"], indent=2, ensure_ascii=False).splitlines():
            print_line("  ", line, is_error=is_error)
    if has_issues:
        for issue in attempt["issues"]:
            _print_issue(issue, is_error=is_error)


def print_blocking_attempt(run: dict[str, Any], *, is_error: bool = False) -> None:
    """The attempt that a run did not get past, if it is known."""
    blocking = run["blocking"]
    for step in run["steps"] if blocking else ():
        for attempt in step["attempts"]:
            if (attempt["step"], attempt["number"]) == (blocking["step"], blocking["attempt"]):
                print_attempt(step["name"], attempt, is_error=is_error)


def _print_issue(issue: dict[str, Any], *, is_error: bool) -> None:
    place = f" ({issue['path']})" if issue["path"] else ""
    print_line("  ", paint(issue["severity"]), f" {issue['code']}: {issue['description']}{place}", is_error=is_error)
    for suggestion in issue["suggestions"]:
        print_line("    → ", suggestion, is_error=is_error)


def _count_issues(attempt: dict[str, Any]) -> str:
    counts: dict[str, int] = {}
    for issue in attempt["issues"]:
        counts[issue["severity"]] = counts.get(issue["severity"], 0) + 1
    return format_issue_counts(counts)
