"""The guides of the documentation, rendered from their Markdown inside the layout of the pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

from runs.pages.access import require_sign_in

IMAGE_TYPES = {".png": "image/png", ".svg": "image/svg+xml"}
_INDEX = "index"
_GUIDE_ROW = re.compile(
    r"^\| (?:\*\*(?P<section>[^*]+)\*\*|\[(?P<title>[^\]]+)\]\((?P<name>[a-z-]+)\.md\)) ", re.MULTILINE
)


@require_safe
@require_sign_in
def show_guide(request: HttpRequest, name: str = _INDEX) -> HttpResponse:
    """One guide beside the list of all."""
    source = settings.GUIDES_DIR / f"{name}.md"
    if not source.is_file():
        raise Http404
    title, html = _render_guide(source, reverse("runs:guides"))
    return render(request, "runs/guide.html", {"title": title, "html": html, "guides": list_guides(), "name": name})


@require_safe
@require_sign_in
def show_guide_image(request: HttpRequest, name: str) -> HttpResponse:
    """A picture of a guide."""
    source = settings.GUIDES_DIR / "images" / name
    if not re.fullmatch(r"[\w-]+\.(png|svg)", name) or not source.is_file():
        raise Http404
    return HttpResponse(source.read_bytes(), content_type=IMAGE_TYPES[source.suffix])


def list_guides() -> Sequence[dict[str, str]]:
    """All guides in the order of the index, with their sections."""
    source, base_url = settings.GUIDES_DIR / f"{_INDEX}.md", reverse("runs:guides")
    guides, section = [], ""
    for row in _GUIDE_ROW.finditer(source.read_text(encoding="utf-8") if source.is_file() else ""):
        section = row["section"] or section
        if row["name"]:
            link = {"name": row["name"], "title": row["title"], "url": f"{base_url}{row['name']}/"}
            guides.append({"section": section, **link})
    return guides


def _render_guide(source: Path, base_url: str) -> tuple[str, str]:
    """The title, and HTML without raw HTML of the source.

    ``base_url`` is the address of the index, which those of guides and pictures begin with.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    env: dict[str, object] = {}
    tokens = parser.parse(source.read_text(encoding="utf-8"), env)
    title, counts = source.stem, dict[str, int]()
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == "heading_open" and following is not None:
            words = "".join(part.content for part in following.children or () if part.type in ("text", "code_inline"))
            token.attrSet("id", _build_anchor(words, counts))
            title = words if token.tag == "h1" else title
        elif token.type == "fence":
            token.info = token.info.split(" ")[0]
            token.attrSet("tabindex", "0")
        elif token.type == "table_open":
            # It scrolls in its own box, which the keyboard must reach.
            token.attrSet("tabindex", "0")
        elif token.type in ("th_open", "td_open") and token.attrs.pop("style", "") == "text-align:right":
            # The content security policy forbids styles in attributes.
            token.attrSet("class", "number")
        elif token.type == "inline":
            token.children = _adapt_links(token.children or [], source.parent, base_url)
    return title, parser.renderer.render(tokens, parser.options, env)


def _build_anchor(words: str, counts: dict[str, int]) -> str:
    """The id of a heading, as code hosts build it: links between guides name it."""
    anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
    counts[anchor] = counts.get(anchor, -1) + 1
    return f"{anchor}-{counts[anchor]}" if counts[anchor] else anchor


def _adapt_links(parts: Sequence[Token], folder: Path, base_url: str) -> list[Token]:
    """Links to other guides and pictures lead to their pages; those to other files of the repository become text."""
    kept, is_inside = [], False
    for part in parts:
        if part.type == "link_open":
            url = _build_url(str(part.attrGet("href") or ""), folder, base_url)
            part.attrSet("href", url)
            is_inside = bool(url)
        elif part.type == "image":
            part.attrSet("src", _build_url(str(part.attrGet("src") or ""), folder, base_url))
            part.attrSet("loading", "lazy")
        if is_inside or part.type not in ("link_open", "link_close"):
            kept.append(part)
    return kept


def _build_url(target: str, folder: Path, base_url: str) -> str:
    """The address that a link of a guide leads to; empty if it is that of no guide and no picture."""
    file, mark, anchor = target.partition("#")
    if "://" in target or not file:
        return target
    if re.fullmatch(r"images/[\w-]+\.(png|svg)", file):
        return f"{base_url}{file}"
    name = file.removesuffix(".md")
    if file.endswith(".md") and re.fullmatch(r"[\w-]+", name) and (folder / file).is_file():
        return f"{base_url}{'' if name == _INDEX else f'{name}/'}{mark}{anchor}"
    return ""
