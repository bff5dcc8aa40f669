"""What changed from one version of a flow to another, on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from difflib import unified_diff
from typing import Any

from runs.client.printing import NONE, paint, print_line

CONTEXT = 2
"""Lines that stay the same, and are shown before and behind those that don't."""

_SIGNS = {"added": "+", "removed": "-", "changed": "~"}
_STYLES = {"+": "green", "-": "red"}


def print_changes(changes: Iterable[dict[str, Any]], indent: str = "") -> None:
    """Each change of the flow’s own fields, of a step and of its audits, with the fields that differ."""
    for change in changes:
        sign = _SIGNS[change["kind"]]
        # Which flow it is stands above.
        called = f" {change['place']} “{change['name']}”" if change["place"] else ""
        notes = f": {'; '.join(change['notes'])}" if change["notes"] else ""
        print_line(indent, paint(f"{sign} {change['subject']}{called}", _STYLES.get(sign, "")), notes)
        for field in change["fields"]:
            _print_field(field, f"{indent}    ")
        print_changes(change.get("audits", ()), f"{indent}    ")


def _print_field(field: dict[str, Any], indent: str) -> None:
    old, new = _write(field["old"]), _write(field["new"])
    notes = f" ({'; '.join(field['notes'])})" if field["notes"] else ""
    if "\n" not in old + new:
        values = f"{old or NONE} → {new or NONE}" if field["kind"] == "changed" else old or new
        print_line(f"{indent}{field['field']}: {values}{notes}")
        return
    print_line(f"{indent}{field['field']}:{notes}")
    for line in _compare(old, new):
        print_line(f"{indent}  ", paint(line, _STYLES.get(line[:1], "")))


def _write(value: Any) -> str:
    """A value as lines; nothing where none is set."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def _compare(old: str, new: str) -> Iterator[str]:
    """The lines that differ, with a sign before each, and some around them."""
    lines = unified_diff(old.splitlines(), new.splitlines(), n=CONTEXT, lineterm="")
    # The first two name the files, which these are not; where others begin stands between two @.
    return ("…" if line.startswith("@@") else line for number, line in enumerate(lines) if number > 2)
