"""What keeps the editor of a large flow quick: forms are made once, and a posted page is copied without deep looks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from django.forms import Media
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict
from nested_admin.nested import NestedInlineAdminFormset


class PartFormset(NestedInlineAdminFormset):  # type: ignore[misc]  # nested_admin ships no types
    """A formset as the admin shows it. Each walk through its forms would make all of them anew, nested ones too."""

    @cached_property
    def _parts(self) -> list[Any]:
        return list(super().__iter__())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parts)

    @property
    def media(self) -> Media:
        """The scripts that forms of the admin need; no field of the editor adds any."""
        media: Media = self.opts.media
        return media


class PostedPage(QueryDict):
    """A posted page, of which nested_admin makes a copy for each step."""

    @classmethod
    def of(cls, page: QueryDict) -> PostedPage:
        """The same page."""
        posted = cls("", mutable=True, encoding=page.encoding)
        for name, values in page.lists():
            posted.setlist(name, values)
        posted._mutable = False
        return posted

    def copy(self) -> PostedPage:
        """A page that can be changed. Fields are text, into which a deep copy need not look."""
        copied = PostedPage("", mutable=True, encoding=self.encoding)
        for name, values in self.lists():
            MultiValueDict.setlist(copied, name, list(values))
        return copied
