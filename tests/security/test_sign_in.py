"""Signing in: guessing is slowed down, for names and for addresses, and no user learns who has an account."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from runs.models import AuditEntry, BrowserSession
from tests.runs.pages.reading import read_words

pytestmark = pytest.mark.django_db

WRONG = "wrong"
PAGES = ["/accounts/login/", "/admin/login/"]


@pytest.fixture(autouse=True)
def ada(settings: Any) -> User:
    settings.AXES_ENABLED = True
    return User.objects.create_superuser("ada", password="correct horse")


def sign_in(
    name: str = "ada", password: str = WRONG, *, page: str = PAGES[0], address: str = "192.0.2.7", client: Any = None
) -> Any:
    return (client or Client()).post(page, {"username": name, "password": password}, REMOTE_ADDR=address)


def list_entries() -> list[tuple[str, str, str]]:
    return [(entry.action, entry.object_label, entry.address) for entry in AuditEntry.objects.order_by("pk")][1:]


@pytest.mark.parametrize("form", PAGES)
def test_after_five_wrong_passwords_a_page_says_when_to_try_again(form: str) -> None:
    assert [sign_in(page=form).status_code for _ in range(5)] == [200, 200, 200, 200, 429]
    # The right one is not taken either now, and to go on trying makes it no longer.
    answer = sign_in(password="correct horse", page=form)
    assert answer.status_code == 429
    assert answer["Retry-After"] == str(15 * 60)
    assert "Try again in 15 minutes" in read_words(answer.content.decode())
    # A lock-out is reported once, however long a user goes on.
    assert [action for action, _, _ in list_entries()] == ["sign_in_failed"] * 4 + ["locked_out"]


def test_it_ends_after_a_quarter_of_an_hour_and_locks_out_no_others() -> None:
    User.objects.create_user("olga", password="correct horse")
    for _ in range(6):
        sign_in()
    assert sign_in("olga", "correct horse").status_code == 302
    assert sign_in(password="correct horse", address="192.0.2.8").status_code == 302
    for _ in range(6):
        sign_in()
    AccessAttempt.objects.update(attempt_time=timezone.now() - timedelta(minutes=14))
    assert sign_in(password="correct horse").status_code == 429
    AccessAttempt.objects.update(attempt_time=timezone.now() - timedelta(minutes=15, seconds=1))
    assert sign_in(password="correct horse").status_code == 302


def test_an_address_that_guesses_for_many_names_is_locked_out_with_all_of_them(settings: Any) -> None:
    settings.AXES_FAILURE_LIMIT = 2
    User.objects.create_user("olga", password="correct horse")
    answers = [sign_in(f"somebody-{number}").status_code for number in range(20)]
    assert answers == [200] * 19 + [429]
    assert sign_in("olga", "correct horse").status_code == 429
    assert sign_in("olga", "correct horse", address="192.0.2.8").status_code == 302


def test_all_addresses_of_a_network_of_ipv6_count_as_one(settings: Any) -> None:
    settings.AXES_FAILURE_LIMIT = 2
    places = [f"2001:db8:1:2::{number:x}" for number in range(20)]
    answers = [sign_in(f"somebody-{number}", address=place).status_code for number, place in enumerate(places)]
    assert answers == [200] * 19 + [429]
    assert sign_in(password="correct horse", address="2001:db8:1:2:ffff::1").status_code == 429
    # What they leave behind is bounded too.
    for number in range(20):
        sign_in(f"nobody-{number}", address=places[number], client=Client(headers={"User-Agent": f"Browser {number}"}))
    assert AccessAttempt.objects.count() == len(list_entries()) == 20
    assert not BrowserSession.objects.exists()
    assert sign_in(password="correct horse", address="2001:db8:1:3::1").status_code == 302
    # The trail knows the address itself, and a lock-out is lifted by any of them.
    assert AuditEntry.objects.filter(address=places[3]).exists()
    call_command("axes_reset_ip", "2001:db8:1:2::9")
    assert sign_in(password="correct horse", address=places[0]).status_code == 302


def test_who_has_an_account_does_not_guess_on_for_others(settings: Any) -> None:
    settings.AXES_FAILURE_LIMIT = 2
    User.objects.create_user("mallory", password="correct horse")
    answers = []
    for number in range(20):
        answers.append(sign_in(f"somebody-{number}").status_code)
        if number % 10 == 5:
            sign_in("mallory", "correct horse")
    assert answers[-1] == 429


def test_a_name_that_is_guessed_from_many_addresses_is_locked_out(settings: Any) -> None:
    settings.AXES_FAILURE_LIMIT = 2
    answers = [sign_in(address=f"192.0.2.{number}").status_code for number in range(40)]
    assert answers == [200] * 39 + [429]
    assert sign_in(password="correct horse", address="198.51.100.1").status_code == 429


def test_right_after_a_few_wrong_ones_counts_again_and_an_administrator_lets_a_user_in_again() -> None:
    for _ in range(2):
        assert [sign_in().status_code for _ in range(4)] == [200] * 4
        assert sign_in(password="correct horse").status_code == 302
    for _ in range(5):
        sign_in()
    call_command("axes_reset_username", "ada", verbosity=0)
    assert sign_in(password="correct horse").status_code == 302


def test_an_unknown_name_is_answered_as_a_known_one_also_when_it_is_locked_out() -> None:
    User.objects.create_user("gone", password="correct horse", is_active=False)
    pages: dict[str, list[Any]] = {}
    for name in ("ada", "nobody", "gone"):
        answers = [sign_in(name, "correct horse" if name == "gone" else "wrong") for _ in range(6)]
        pages[name] = [
            (answer.status_code, read_words(answer.content.decode()).replace(name, "NAME")) for answer in answers
        ]
    assert pages["ada"] == pages["nobody"] == pages["gone"]


def test_the_trail_tells_of_sign_ins_and_of_nothing_typed_by_mistake() -> None:
    client = Client()
    sign_in()
    sign_in("correct horse battery staple")
    sign_in(password="correct horse", client=client)
    client.post("/accounts/logout/")
    assert list_entries() == [
        ("sign_in_failed", "ada", "192.0.2.7"),
        ("sign_in_failed", "", "192.0.2.7"),
        ("signed_in", "ada", "192.0.2.7"),
        ("signed_out", "ada", "127.0.0.1"),
    ]
    assert "battery" not in str(list(AuditEntry.objects.values_list()))


def test_what_is_counted_holds_no_password_no_secret_of_the_form_and_no_name_that_no_user_has() -> None:
    client = Client(enforce_csrf_checks=True)
    client.get("/accounts/login/")
    token = client.cookies["csrftoken"].value
    for name in ("ada", "battery staple"):
        page = {"username": name, "password": "correct hoarse", "csrfmiddlewaretoken": token}
        assert client.post("/accounts/login/?next=/runs/", page).status_code == 200
    stored = str(list(AccessAttempt.objects.values_list()))
    assert all(text not in stored for text in (token, "hoarse", "battery"))
    # A user’s own is there as it is: administrators lift lock-outs by it.
    names = sorted(AccessAttempt.objects.values_list("username", flat=True))
    assert names[0] == "ada" and str(names[1]).startswith("unknown-")


def test_the_key_of_a_session_changes_at_sign_in_and_sign_out() -> None:
    client = Client()
    session = client.session
    session["seen"] = True
    session.save()
    before = session.session_key
    client.cookies["sessionid"] = before
    sign_in(password="correct horse", client=client)
    cookie = client.cookies["sessionid"]
    during = cookie.value
    assert before != during
    # Out of reach of scripts and other sites.
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Lax", "/")
    planted = Client()
    planted.cookies["sessionid"] = before
    assert planted.get("/account/").status_code == 302
    assert BrowserSession.objects.get(session_key=during).user == User.objects.get(username="ada")
    client.post("/accounts/logout/")
    assert not BrowserSession.objects.filter(session_key=during).exists()


@pytest.mark.parametrize(
    "place",
    [
        "https://evil.example/", "//evil.example/", "///evil.example", "/\\evil.example", "\\\\evil.example",
        "javascript:alert(1)", "http:evil.example", "https:///evil.example", "/\t/evil.example", "ftp://evil.example",
        "data:text/html,x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", PAGES)
def test_signing_in_leads_to_no_other_site(form: str, place: str) -> None:
    answer = Client().post(form, {"username": "ada", "password": "correct horse", "next": place})
    out = Client()
    out.force_login(User.objects.get(username="ada"))
    left = out.post(f"/accounts/logout/?next={place}")
    for location in (answer["Location"], left["Location"]):
        # Browsers take a backslash for a slash, and leave white space out.
        read = re.sub(r"\s", "", location.replace("\\", "/"))
        assert urlsplit(urljoin(f"http://testserver{form}", read))[:2] == ("http", "testserver")
