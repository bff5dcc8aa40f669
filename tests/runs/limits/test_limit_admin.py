"""Limits in the admin: who may set them, and what a slip of the hand gets."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from runs.models import RateLimit
from tests.site.test_content_security import InlineFinder

pytestmark = pytest.mark.django_db

ADD = "/admin/runs/ratelimit/add/"


def add(client: Client, **fields: str) -> Any:
    """Send the form with these fields filled in."""
    empty = {"model": "", "calls_in_flight": "", "requests_per_minute": "", "tokens_per_minute": ""}
    return client.post(ADD, {**empty, **fields})


def test_staff_set_a_limit_for_all_models_and_one_for_a_family(admin_client: Client) -> None:
    assert InlineFinder(admin_client.get(ADD).content.decode()).found == []
    assert add(admin_client, calls_in_flight="50").status_code == 302
    assert add(admin_client, model=" gpt-5* ", requests_per_minute="500").status_code == 302
    assert [str(limit) for limit in RateLimit.objects.all()] == ["All models", "gpt-5*"]
    listed = admin_client.get("/admin/runs/ratelimit/").content.decode()
    assert "All models" in listed and "gpt-5*" in listed


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"model": "gpt-5"}, "__all__"),
        ({"calls_in_flight": "0"}, "calls_in_flight"),
        ({"tokens_per_minute": "-1"}, "tokens_per_minute"),
        ({"requests_per_minute": "1" + "0" * 13}, "requests_per_minute"),
        *(({"model": name, "calls_in_flight": "1"}, "model") for name in ("*", "gpt-*-mini", "gpt-5**", "gpt 5")),
        ({"model": "o3", "calls_in_flight": "2"}, "model"),  # it has one
    ],
)
def test_a_limit_that_is_not_valid_is_refused(admin_client: Client, fields: dict[str, str], wrong: str) -> None:
    RateLimit.objects.create(model="o3", calls_in_flight=1)
    page = add(admin_client, **fields)
    assert list(page.context["adminform"].form.errors) == [wrong]
    assert RateLimit.objects.count() == 1


@pytest.mark.parametrize(("model", "level"), [("gpt5-mini", "warning"), ("gpt-5*", "success")])
def test_a_limit_that_no_flow_falls_under_is_saved_with_a_warning(admin_client: Client, model: str, level: str) -> None:
    add(admin_client, model=model, calls_in_flight="1")
    page = admin_client.get("/admin/runs/ratelimit/")
    assert level == next(message.level_tag for message in page.context["messages"])
