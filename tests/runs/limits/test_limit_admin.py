"""Limits in the admin: who may set them, and what a slip of the hand gets."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.test import Client

from runs.models import RateLimit
from tests.site.test_content_security import InlineFinder

pytestmark = pytest.mark.django_db

ADD = "/admin/runs/ratelimit/add/"


@pytest.fixture
def staff(client: Client) -> Client:
    """A browser in which somebody is signed in who may set limits."""
    client.force_login(User.objects.create_superuser("ada", password="secret"))
    return client


def fill(**fields: Any) -> dict[str, Any]:
    """The form with these fields filled in."""
    return {"model": "", "calls_in_flight": "", "requests_per_minute": "", "tokens_per_minute": "", **fields}


def find_wrong(client: Client, **fields: Any) -> list[str]:
    """The fields that the form gets errors for which is sent so."""
    page = client.post(ADD, fill(**fields))
    assert page.status_code == 200
    return list(page.context["adminform"].form.errors)


def test_staff_set_a_limit_for_all_models_and_one_for_a_family(staff: Client) -> None:
    assert InlineFinder(staff.get(ADD).content.decode()).found == []
    assert staff.post(ADD, fill(calls_in_flight="50")).status_code == 302
    assert staff.post(ADD, fill(model=" gpt-5* ", requests_per_minute="500")).status_code == 302
    assert [str(limit) for limit in RateLimit.objects.all()] == ["All models", "gpt-5*"]
    listed = staff.get("/admin/runs/ratelimit/").content.decode()
    assert "All models" in listed and "gpt-5*" in listed


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"model": "gpt-5"}, "__all__"),
        ({"calls_in_flight": "0"}, "calls_in_flight"),
        ({"tokens_per_minute": "-1"}, "tokens_per_minute"),
        *(({"requests_per_minute": number}, "requests_per_minute") for number in (str(10**13), "many")),
        *(
            ({"model": model, "calls_in_flight": "1"}, "model")
            for model in ("*", "*-mini", "gpt-*-mini", "gpt-5**", "gpt 5", "gpt-5, gpt-4o")
        ),
    ],
)
def test_a_limit_that_is_not_valid_is_refused(staff: Client, fields: dict[str, str], wrong: str) -> None:
    assert find_wrong(staff, **fields) == [wrong]
    assert not RateLimit.objects.exists()


@pytest.mark.parametrize("model", ["", "gpt-5-mini"])
def test_a_second_limit_for_the_same_model_is_refused(staff: Client, model: str) -> None:
    staff.post(ADD, fill(model=model, calls_in_flight="1"))
    assert find_wrong(staff, model=model, calls_in_flight="2")
    assert RateLimit.objects.count() == 1


@pytest.mark.parametrize(("model", "level"), [("gpt5-mini", "warning"), ("gpt-5*", "success")])
def test_a_limit_that_no_flow_falls_under_is_saved_with_a_warning(staff: Client, model: str, level: str) -> None:
    page = staff.post(ADD, fill(model=model, calls_in_flight="1"), follow=True)
    assert next(message.level_tag for message in page.context["messages"]) == level
    assert RateLimit.objects.count() == 1


def test_limits_need_a_permission(client: Client) -> None:
    client.force_login(User.objects.create_user("bob", password="secret", is_staff=True))
    assert client.get("/admin/runs/ratelimit/").status_code == 403


def test_the_database_keeps_no_row_that_limits_nothing() -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        RateLimit.objects.create(model="gpt-5")
