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


def find_errors(client: Client, **fields: Any) -> list[str]:
    """The sentences that the form gets which is sent so."""
    page = client.post(ADD, fill(**fields))
    assert page.status_code == 200
    return [error for errors in page.context["adminform"].form.errors.values() for error in errors]


def test_staff_set_a_limit_for_all_models_and_one_for_a_family(staff: Client) -> None:
    assert staff.post(ADD, fill(calls_in_flight="50")).status_code == 302
    assert staff.post(ADD, fill(model=" gpt-5* ", requests_per_minute="500")).status_code == 302
    assert [str(limit) for limit in RateLimit.objects.all()] == ["All models", "gpt-5*"]
    listed = staff.get("/admin/runs/ratelimit/").content.decode()
    assert "All models" in listed and "gpt-5*" in listed


NO_MODEL = (
    "Write a model's name such as “gpt-5-mini”, or the beginning of names with one “*” at the end such as “gpt-5*”; "
    "leave it empty for all models."
)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"model": "gpt-5"}, "Give at least one of the three numbers; without any the row limits nothing."),
        ({"calls_in_flight": "0"}, "Ensure this value is greater than or equal to 1."),
        ({"tokens_per_minute": "-1"}, "Ensure this value is greater than or equal to 1."),
        ({"requests_per_minute": str(10**13)}, "Ensure this value is less than or equal to 1000000000000."),
        ({"requests_per_minute": "many"}, "Enter a whole number."),
        *(
            ({"model": model, "calls_in_flight": "1"}, NO_MODEL)
            for model in ("*", "*-mini", "gpt-*-mini", "gpt-5**", "gpt 5", "gpt-5, gpt-4o")
        ),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_with_a_sentence(
    staff: Client, fields: dict[str, str], expected: str
) -> None:
    assert find_errors(staff, **fields) == [expected]
    assert not RateLimit.objects.exists()


@pytest.mark.parametrize("model", ["", "gpt-5-mini"])
def test_a_second_limit_for_the_same_model_is_refused(staff: Client, model: str) -> None:
    staff.post(ADD, fill(model=model, calls_in_flight="1"))
    errors = find_errors(staff, model=model, calls_in_flight="2")
    assert errors == ["There is a limit for the same model already; change that one."]


def test_a_limit_that_no_flow_falls_under_is_saved_with_a_warning(staff: Client) -> None:
    page = staff.post(ADD, fill(model="gpt5-mini", calls_in_flight="1"), follow=True)
    warnings = [str(message) for message in page.context["messages"] if message.level_tag == "warning"]
    assert warnings == ["No flow asks a model that “gpt5-mini” covers, so this limits nothing yet. Is the name right?"]
    assert RateLimit.objects.count() == 1

    page = staff.post(ADD, fill(model="gpt-5*", calls_in_flight="1"), follow=True)
    assert [message.level_tag for message in page.context["messages"]] == ["success"]


def test_the_form_says_what_its_fields_mean_and_keeps_to_the_content_security_policy(staff: Client) -> None:
    html = staff.get(ADD).content.decode()
    assert "Calls under way at the same time." in html and "Tokens of prompts and answers together." in html
    assert InlineFinder(html).found == []


def test_whoever_lacks_the_permission_sees_no_limits(client: Client) -> None:
    client.force_login(User.objects.create_user("bob", password="secret", is_staff=True))
    assert client.get("/admin/runs/ratelimit/").status_code == 403


def test_the_database_keeps_no_row_that_limits_nothing() -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        RateLimit.objects.create(model="gpt-5")
