"""What the site of the documentation has besides the pages in ``docs/``: MkDocs calls these functions.

Pages at the root of the repository become pages of the site, ``.env.example`` becomes the page of all settings, and
decisions are listed. Links between them lead to their pages; those to other files of the repository become plain text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent

PAGES_OF_ROOT = {
    "README.md": "getting-started.md",
    "CHANGELOG.md": "release-notes.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    ".env.example": "settings.md",
}
"""Files at the root of the repository, and the pages of the site that they become."""

_LINK = re.compile(r"(?P<image>!?)\[(?P<label>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_CODE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^( *```\w+) [^\n`]*$", re.MULTILINE)
_SECTION = re.compile(r"# -{3,} (?P<name>.+?) -*")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the decisions into the navigation."""
    decisions = next(entry["Decisions"] for entry in config.nav or [] if "Decisions" in entry)
    decisions += [f"decisions/{path.name}" for path in list_decisions()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of something else."""
    for name, page in PAGES_OF_ROOT.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=write_settings(text) if name == ".env.example" else text))
    files.append(File.generated(config, "decisions/index.md", content=write_decisions()))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """The text of a page with links that hold on the site."""
    path = page.file.src_uri
    source = next((name for name, made in PAGES_OF_ROOT.items() if made == path), f"docs/{path}")
    # What is behind the language of a block is for our tests.
    return _FENCE.sub(r"\1", rewrite_links(markdown, source=source))


def rewrite_links(markdown: str, *, source: str) -> str:
    """Links of the file ``source``, by its path in the repository, as they are between pages of the site."""
    here = posixpath.dirname(PAGES_OF_ROOT.get(source, source.removeprefix("docs/")))

    def rewrite(match: re.Match[str]) -> str:
        path, hash_mark, anchor = match["target"].partition("#")
        if "://" in path or not path:
            return match[0]
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        page = PAGES_OF_ROOT.get(wanted) or (wanted.removeprefix("docs/") if wanted.startswith("docs/") else None)
        if page == "decisions":
            page = "decisions/index.md"
        if page is None:
            return match["label"]
        return f"{match['image']}[{match['label']}]({posixpath.relpath(page, here or '.')}{hash_mark}{anchor})"

    parts, end = [], 0
    for block in _CODE.finditer(markdown):
        parts += [_LINK.sub(rewrite, markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, _LINK.sub(rewrite, markdown[end:])])


def write_settings(example: str) -> str:
    """The page of all settings, made of ``.env.example``."""
    return "\n".join(["# All settings", "", *_read_settings(example)])


def _read_settings(example: str) -> Iterator[str]:
    is_code = False
    for line in example.splitlines():
        is_setting = re.match(r"#[A-Z_]+=", line) is not None
        if is_setting != is_code:
            yield "```sh" if is_setting else "```"
            is_code = is_setting
        if is_setting:
            yield line.removeprefix("#")
        elif section := _SECTION.fullmatch(line):
            yield f"\n## {section['name']}\n"
        else:
            yield line.removeprefix("#").strip()
    if is_code:
        yield "```"


def list_decisions() -> list[Path]:
    """The files of the decisions, by number."""
    return sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))


def write_decisions() -> str:
    """The list of decisions, by number."""
    paths = list_decisions()
    titles = [path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for path in paths]
    rows = [f"- [{title}]({path.name})" for path, title in zip(paths, titles, strict=True)]
    return "\n".join(["# Decisions", "", "Why things are built as they are.", "", *rows, ""])
