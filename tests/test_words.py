"""Texts are plain English: phrases that read like a translation stay out of code, pages, messages and guides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

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
    r"told (apart|from)", r"tells? apart", r"stood\b", r"stands?\b(?! (for|out|in|alone|still|apart|level))",
    r"blame", r"hopeless", r"doomed", r"audit trail", r"how manieth", r"all the same",
    r"(?<!there )(is|are) no (?!longer|more\b)",
)  # fmt: skip
UNWANTED = re.compile(r"(?<![\w-])(?:" + "|".join(PHRASES) + r")", re.IGNORECASE)

KEPT = {
    "runs/models/account.py": "the salt of a signature, which must not change",
    "runs/models/saved_view.py": "the help text of a column, which belongs to a migration",
}
"""Files whose phrases stay, with the reason."""


def split_template(text: str) -> Iterator[str]:
    """What a reader sees of a template: the text between tags, and the attributes that are read out."""
    text = re.sub(r"{#.*?#}|{%.*?%}", "", text, flags=re.DOTALL)
    text = re.sub(r"{{.*?}}", "…", text, flags=re.DOTALL)
    yield from re.findall(r'(?:title|placeholder|alt|aria-label)="([^"]*)"', text)
    yield from re.sub(r"<[^>]*>", "\n", text).splitlines()


def split_guide(text: str) -> Iterator[str]:
    """The paragraphs of a guide, without addresses of links and blocks of code: these show what programs say."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from re.sub(r"\]\([^)]*\)", "]", text).split("\n\n")


def list_texts() -> Iterator[tuple[str, str]]:
    """Each text with the file that it is in; of code and scripts all of it, comments and docstrings included."""
    modules = [path for app in ("flows", "runs", "toolflow_site") for path in (ROOT / app).rglob("*.py")]
    guides = [*(ROOT / "docs").glob("*.md"), *ROOT.glob("[CRS]*.md"), ROOT / ".env.example"]
    for split, paths in (
        (str.splitlines, [path for path in modules if "migrations" not in path.parts]),
        (split_template, (ROOT / "templates").rglob("*.html")),
        (str.splitlines, (ROOT / "static" / "toolflow").rglob("*.[cj]s*")),
        (split_guide, [path for path in guides if path.name != "CHANGELOG.md"]),
    ):
        for path in paths:
            for text in split(path.read_text(encoding="utf-8")):
                yield str(path.relative_to(ROOT)), " ".join(text.split())


def test_texts_have_none_of_the_phrases() -> None:
    found = [(name, match[0], text[:160]) for name, text in list_texts() for match in UNWANTED.finditer(text)]
    left = [f"{name}: “{phrase}” in {text}" for name, phrase, text in found if name not in KEPT]
    assert not left, "\n".join(left)
    assert KEPT.keys() - {name for name, *_ in found} == set(), "take these off the list"
