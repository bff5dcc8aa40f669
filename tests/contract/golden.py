"""Golden files: what is expected, in YAML that a reviewer reads as a diff."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
IS_UPDATING = bool(os.environ.get("TOOLFLOW_TEST_UPDATE_GOLDEN"))


class _Dumper(yaml.SafeDumper):
    """Writes what fits one line on one line, and no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _is_short(value: Any) -> bool:
    text = repr(value)
    return len(text) <= 100 and "\\n" not in text


def _represent_dict(dumper: _Dumper, data: dict[Any, Any]) -> Any:
    return dumper.represent_mapping("tag:yaml.org,2002:map", data.items(), flow_style=_is_short(data))


def _represent_list(dumper: _Dumper, data: list[Any]) -> Any:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=_is_short(data))


def _represent_text(dumper: _Dumper, data: str) -> Any:
    has_other_breaks = any(character in data for character in "\r\x85\u2028\u2029")
    style = '"' if has_other_breaks else "|" if "\n" in data else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(dict, _represent_dict)
_Dumper.add_representer(list, _represent_list)


def read_golden(name: str) -> Any:
    """The content of a golden file; None if there is none yet."""
    path = FOLDER / name
    return yaml.load(path.read_text("utf-8"), yaml.CSafeLoader) if path.exists() else None


def write_golden(name: str, content: Any) -> None:
    """Rewrite a golden file below the comment that it begins with."""
    path = FOLDER / name
    lines = path.read_text("utf-8").splitlines(keepends=True) if path.exists() else []
    comment = "".join(takewhile(lambda line: line.startswith("#"), lines))
    text = yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    path.write_text(comment + text, "utf-8")


def check_golden(name: str, actual: Any) -> None:
    """Fail with a line for each difference from the golden file, or rewrite it."""
    if IS_UPDATING:
        write_golden(name, actual)
    differences = list(_find_differences("", read_golden(name), actual))
    assert not differences, "\n".join(differences)


def _find_differences(path: str, expected: Any, actual: Any) -> Iterator[str]:
    if type(expected) is not type(actual):
        yield f"{path}: expected {expected!r}, got {actual!r}"
    elif isinstance(expected, dict):
        for name in expected | actual:
            yield from _find_differences(f"{path}/{name}", expected.get(name, "nothing"), actual.get(name, "nothing"))
    elif isinstance(expected, list) and len(expected) == len(actual):
        for index, (before, after) in enumerate(zip(expected, actual, strict=True)):
            yield from _find_differences(f"{path}/{index}", before, after)
    elif expected != actual:
        yield f"{path}: expected {expected!r}, got {actual!r}"
