"""Which test shows a feature: a first guess, by what the files of tests contain."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from django.urls import get_resolver

from tests.contract.collecting import ROOT, list_buttons, read_templates

NONE = "none"
_PAGES = ("tests/runs/", "tests/browser/", "tests/security/", "tests/site/", "tests/journeys/")
_FOLDERS = {
    "api operations": ("tests/api/", "tests/security/", "tests/runs/"),
    "api parameters": ("tests/api/", "tests/client/"),
    "toolflow commands": ("tests/client/",),
    "management commands": (*_PAGES, "tests/flows/"),
    "page parameters": (*_PAGES, "tests/flows/"),
    "form fields": (*_PAGES, "tests/flows/"),
    "controls": (*_PAGES, "tests/flows/"),
}
"""Where tests of a kind are; elsewhere all of them are searched."""
_WHOLE_KINDS = {"urls": "tests/site/test_permissions.py", "permissions and groups": "tests/runs/test_installation.py"}
"""Tests that go through all of a kind: they show what no other test names."""


@cache
def _read_tests() -> dict[str, str]:
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}
    return {path: text for path, text in texts.items() if not path.startswith("tests/contract/")}


def find_test(kind: str, feature: str) -> str:
    """The path of the file whose tests speak of the feature most, or “none”."""
    needed, words = _describe(kind, feature)
    folders = _FOLDERS.get(kind, ("tests/",))
    best, most = NONE, 0.0
    for path, text in _read_tests().items():
        if not path.startswith(folders) or not all(re.search(pattern, text) for pattern in needed):
            continue
        # One file in which it is the subject tells more than many words in one about all.
        hits = sum(len(re.findall(pattern, text)) for pattern in needed[-1:])
        score = hits / (1 + len(text) / 20_000) + 20 * sum(word in path.rpartition("/")[2] for word in words)
        if score > most:
            best, most = path, score
    return _WHOLE_KINDS.get(kind, NONE) if best == NONE else best


def _describe(kind: str, feature: str) -> tuple[list[str], list[str]]:
    """Patterns that a file must all have, the last being what is counted, and words that its name may have."""
    first, _, rest = feature.partition(" ")
    if kind == "urls":
        return [_match_path(rest, "/")], _list_words(rest)
    if kind == "api operations":
        return [_match_path(rest.removeprefix("/api/v1/"), "")], _list_words(rest.removeprefix("/api/v1"))
    if kind == "api parameters":
        path, parameter = rest.split(" ", 1)
        if parameter.startswith("header "):
            # What a header does is shown for all operations at once.
            return [_match_word(parameter.split()[-1])], [*_list_words(path.removeprefix("/api/v1")), "idempotency"]
        return [_match_path(path.removeprefix("/api/v1/"), ""), _match_word(parameter.split()[-1].strip("?"))], (
            _list_words(path.removeprefix("/api/v1"))
        )
    if kind == "page parameters":
        name = feature.rpartition("?")[2]
        return [*([_match_path(first, "/", "[?\"']")] if rest else []), rf"[?&\"']{name}[=\"']"], _list_words(first)
    if kind in {"management commands", "toolflow commands"}:
        words = feature.removeprefix("toolflow ").split()
        names = [word for word in words if not word.startswith(("-", "<"))]
        options = "|".join(_match_word(word) for word in words if word.startswith("-"))
        return [*map(_match_word, names), *filter(None, [options])], names
    if kind == "form fields":
        name = re.split(r"[ =]", feature)[-1]
        return [rf"[\"'/-]{re.escape(name)}[\"'=:]|{re.escape(name)}="], _list_words(feature.partition(":")[0])
    if kind == "controls":
        return _describe_control(feature)
    if kind == "permissions and groups":
        return [_match_word(first) if "." in first else rf"\b{first.upper()}\b|\b{first}\b"], ["permission", "groups"]
    if kind == "settings":
        return [rf"\b{re.escape(feature).replace('<NAME>', '[A-Z_]+')}\b"], ["settings"]
    if kind == "metrics":
        return [rf"\b{feature}"], ["metrics"]
    return [_match_word(feature)], ["token"]


def _describe_control(feature: str) -> tuple[list[str], list[str]]:
    _, kind, name = feature.split(" ", 2)
    if kind == "button":
        words = {words for _, text in read_templates() for key, words in list_buttons(text) if key == name and words}
        texts = [re.escape(text) for text in (name, *words) if len(text) > 3]
        return [rf"(?:{'|'.join(texts) or re.escape(name)})"], []
    path = _list_paths().get(name.split()[-1])
    view = name.rpartition(":")[2]
    return [_match_path(path, "/") if path else rf"\b{re.escape(view)}\b"], _list_words(view)


@cache
def _list_paths() -> dict[str, str]:
    """The paths of all addresses by their names: ``runs:page``."""
    found: dict[str, str] = {}

    def walk(patterns: Iterable[Any], prefix: str, space: str) -> None:
        for entry in patterns:
            path = f"{prefix}{entry.pattern}"
            if hasattr(entry, "url_patterns"):
                walk(entry.url_patterns, path, f"{space}{entry.namespace}:" if entry.namespace else space)
            elif entry.name:
                found[f"{space}{entry.name}"] = re.sub(r"<[^>]*>", "{}", path)

    walk(get_resolver().url_patterns, "/", "")
    return found


def _match_word(name: str) -> str:
    return rf"(?<![\w-]){re.escape(name)}(?![\w-])"


def _match_path(path: str, start: str, end: str = r"[\"'?#\s]") -> str:
    """A path as tests write it: with values or f-string fields in place of its parts."""
    parts = re.split(r"(<\w+>|\{\})", path)
    text = "".join(
        r"(?:\{[^}]*\}|[\w.%-]+|<\w+>)" if re.fullmatch(r"<\w+>|\{\}", part) else re.escape(part) for part in parts
    )
    return rf"(?:[\"'\s]|api/v1/){text.removeprefix('/') if not start else text}(?:{end}|$)"


def _list_words(path: str) -> Iterable[str]:
    return [word.replace("-", "_").rstrip("s") for word in re.findall(r"[a-z-]{4,}", path)]
