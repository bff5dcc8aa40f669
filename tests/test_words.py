"""Texts are plain English: phrases that read like a translation stay out of pages, messages, help texts and guides."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

PHRASES = (
    # What pages said, and no longer say.
    r"the way to the first run", r"places taken", r"waiting for a place", r"waiting for their time",
    r"against the usual", r"failed lately", r"all that failed or errored", r"all drawings have one scale",
    r"who did what", r"critical or above", r"choose all on this page", r"none chosen", r"all that you filter by",
    r"look(ed)? (further|through)", r"audit that fired", r"at most so many", r"write something here", r"retry bill",
    r"again of", r"died on the way", r"of it reasoning", r"a rule of its own", r"a sentence for failed",
    r"compute the output here", r"worker is at work", r"waiting for something", r"last heard of",
    r"receivers know", r"should you ask", r"by a fault of",
    # Words that mean something else, or nothing, to a native reader.
    r"makes? no sense", r"nonsense", r"mend(s|ed|ing)?\b", r"doubtful", r"usually [\d…]", r"by now\b", r"lately",
    r"(who|what|when|which)(so)?ever\b(?= (has|is|was|wants|uses|comes|looks|edits|meets|may|knows|sent))",
    r"grave(r|st)?\b", r"in vain", r"in one go", r"anew\b", r"(some|every|any)body\b", r"nobody\b", r"once more\b",
    r"(is|are|was|were|be) told\b", r"told of", r"tells of", r"hears? (of|no more)", r"(?<!how )so many\b",
    r"blame", r"hopeless", r"doomed", r"audit trail", r"how manieth", r"all the same",
    r"(?<!there )(is|are) no (?!longer|more\b)",
)  # fmt: skip
UNWANTED = re.compile(r"(?<![\w-])(?:" + "|".join(PHRASES) + r")", re.IGNORECASE)

KEPT = {
    "runs/models/browser_session.py": "the salt of a signature, which must not change",
    "runs/models/saved_view.py": "the help text of a column, which belongs to a migration",
}
"""Files whose phrases stay, with the reason."""
_ITS_PAGE = "goes with the page that is rewritten"
EXCUSED = KEPT


def split_code(text: str) -> Iterator[str]:
    """The string literals of a Python module that are sentences: no docstrings, no names."""
    tree = ast.parse(text)
    hidden = {
        id(statement.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
        if isinstance(statement, ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            hidden.update(map(id, node.values))
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in hidden:
            yield node.value if " " in node.value.strip() else ""


def split_template(text: str) -> Iterator[str]:
    """What a reader sees of a template: the text between tags, and the attributes that are read out."""
    text = re.sub(r"{#.*?#}|{%.*?%}", "", text, flags=re.DOTALL)
    text = re.sub(r"{{.*?}}", "…", text, flags=re.DOTALL)
    yield from re.findall(r'(?:title|placeholder|alt|aria-label)="([^"]*)"', text)
    yield from re.sub(r"<[^>]*>", "\n", text).splitlines()


def split_script(text: str) -> Iterator[str]:
    """The strings of a script that hold more than one word."""
    yield from re.findall(r'"(\w[^"\n]* [^"\n]*)"|`(\w[^`]* [^`]*)`', re.sub(r"//.*", "", text))


def split_guide(text: str) -> Iterator[str]:
    """The paragraphs of a guide, without addresses of links and blocks of code: these show what programs say."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from re.sub(r"\]\([^)]*\)", "]", text).split("\n\n")


def list_texts() -> Iterator[tuple[str, str, Iterable[str]]]:
    """Each file with its kind and its texts."""
    for app in ("flows", "runs", "toolflow_site"):
        for path in sorted((ROOT / app).rglob("*.py")):
            if "migrations" not in path.parts:
                yield "code", str(path.relative_to(ROOT)), split_code(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "templates").rglob("*.html")):
        yield "template", str(path.relative_to(ROOT)), split_template(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "static" / "toolflow").rglob("*.js")):
        texts = ("".join(groups) for groups in split_script(path.read_text(encoding="utf-8")))
        yield "script", str(path.relative_to(ROOT)), texts
    guides = [*(ROOT / "docs").glob("*.md"), *ROOT.glob("[CRS]*.md"), ROOT / ".env.example"]
    for path in sorted(path for path in guides if path.name != "CHANGELOG.md"):
        yield "guide", str(path.relative_to(ROOT)), split_guide(path.read_text(encoding="utf-8"))


def find_unwanted(text: str) -> list[str]:
    """The phrases of ``text`` that it should not have."""
    return [match[0] for match in UNWANTED.finditer(" ".join(text.split()))]


@pytest.mark.parametrize("kind", ["code", "template", "script", "guide"])
def test_texts_have_none_of_the_phrases(kind: str) -> None:
    found = {}
    for its_kind, name, texts in list_texts():
        if its_kind == kind and name not in EXCUSED:
            hits = [(phrase, " ".join(text.split())[:160]) for text in texts for phrase in find_unwanted(text)]
            found.update({name: hits} if hits else {})
    assert not found, "\n".join(
        f"{name}: “{phrase}” in {text}" for name, hits in found.items() for phrase, text in hits
    )


def test_each_excused_file_still_has_such_phrases() -> None:
    wrong = {name for _, name, texts in list_texts() if any(find_unwanted(text) for text in texts)}
    assert set(EXCUSED) - wrong == set(), "take these off the list"


@pytest.mark.parametrize(
    ("split", "text", "phrases"),
    [
        (split_code, 'def f():\n    """Nobody."""\n    raise E(f"{x} is no number of {y}")', ["is no "]),
        (split_code, 'a = "It is no longer there, however many times."', []),
        (split_template, '<p class="mended" title="Look further">{{ told }} {# nobody #}</p>', ["Look further"]),
        (split_script, 'say("so many"); // nobody reads this', ["so many"]),
        (split_guide, "Say it\nonce more, [here](nobody.md).", ["once more"]),
    ],
)
def test_only_what_a_reader_sees_counts(split: object, text: str, phrases: list[str]) -> None:
    assert callable(split)
    found = [phrase for part in split(text) for phrase in find_unwanted("".join(part))]
    assert found == phrases
