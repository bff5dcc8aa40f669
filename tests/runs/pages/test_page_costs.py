"""What lists and run pages are fast by: what is the same on every page is built once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.template import Context, Template, TemplateSyntaxError
from django.test import Client
from django.urls import reverse
from django.urls.base import set_script_prefix
from django.urls.resolvers import URLResolver

from runs.models import Run
from runs.templatetags.layout import FixedNode
from tests.engine.builders import make_attempt, make_issue
from tests.runs.pages.history_builders import make_stored_run

pytestmark = pytest.mark.django_db


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> Iterator[list[None]]:
    """Count the calls of a method."""
    calls: list[None] = []
    method = getattr(owner, name)

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(None)
        return method(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, counted)
        yield calls


@pytest.fixture
def run() -> Run:
    issues = (make_issue("critical"), make_issue("low"))
    return make_stored_run(make_attempt(1, 1, "failed", issues=issues), make_attempt(1, 2, "passed"))


@pytest.mark.parametrize(
    ("address", "addresses"), [("/runs/", 1), ("/runs/?status=succeeded&severity=low", 1), ("/runs/{}/", 12)]
)
def test_addresses_of_the_layout_are_found_once(
    viewer: Client, run: Run, address: str, addresses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer.get(address.format(run.pk))
    with counting(monkeypatch, URLResolver, "_reverse_with_prefix") as found:
        assert viewer.get(address.format(run.pk)).status_code == 200
    assert len(found) <= addresses


def render(text: str, **values: Any) -> str:
    return Template("{% load layout toolflow static %}" + text).render(Context(values))


class TestFixed:
    def test_it_holds_what_stands_in_it_below_each_path(self) -> None:
        page = Template(
            "{% load layout %}{% fixed %}<a href=\"{% url 'runs:list' %}\">{% endfixed %}{% address 'logout' %}"
        )
        assert page.render(Context()) == page.render(Context()) == '<a href="/runs/">/accounts/logout/'
        set_script_prefix("/tools/")
        try:
            assert page.render(Context()) == '<a href="/tools/runs/">/tools/accounts/logout/'
        finally:
            set_script_prefix("/")
        assert page.render(Context()) == '<a href="/runs/">/accounts/logout/'

    def test_it_is_drawn_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        page = Template("{% load layout static %}{% fixed %}{% static 'toolflow/logo.svg' %}{% endfixed %}")
        with counting(monkeypatch, FixedNode, "render") as asked, counting(monkeypatch, URLResolver, "resolve"):
            assert "/static/toolflow/logo" in page.render(Context())
            monkeypatch.setattr("django.templatetags.static.StaticNode.render", None)
            assert "/static/toolflow/logo" in page.render(Context())
        assert len(asked) == 2

    @pytest.mark.parametrize(
        "inside",
        [
            "{{ user }}",
            "{% if user %}yes{% endif %}",
            "{% icon name %}",
            "{% icon 'play' size %}",
            "{% url 'runs:page' run %}",
            "{% url 'runs:list' as address %}",
            "{% static name %}",
            "{% csrf_token %}",
            "{% include 'main_nav.html' %}",
            "{% is_simulated_site as site %}",
        ],
    )
    def test_nothing_that_may_differ_gets_in(self, inside: str) -> None:
        with pytest.raises(TemplateSyntaxError, match="may differ between pages"):
            render("{% fixed %}text " + inside + "{% endfixed %}")


def test_an_address_is_that_of_reverse() -> None:
    assert render("{% address 'runs:export' 'csv' %}") == reverse("runs:export", args=["csv"])
