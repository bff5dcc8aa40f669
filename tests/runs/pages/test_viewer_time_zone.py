"""Times as the clock of whoever looks at them shows them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.utils import timezone

from runs.models import Run
from tests.runs.pages.history_builders import make_retried_run
from tests.runs.pages.reading import get_page, read_words, run_address
from toolflow_site.middleware import TIME_ZONE_COOKIE, PageMiddleware

pytestmark = pytest.mark.sql

WINTER = datetime(2026, 1, 15, 22, 30, 5, tzinfo=UTC)
SUMMER = datetime(2026, 7, 15, 22, 30, 5, tzinfo=UTC)


def started_line(client: Client, moment: datetime, zone: str | None) -> str:
    """What the page of a run that started then says of its start."""
    run = Run.objects.first() or make_retried_run()
    Run.objects.filter(pk=run.pk).update(started_at=moment)
    client.cookies.pop(TIME_ZONE_COOKIE, None)
    if zone is not None:
        client.cookies[TIME_ZONE_COOKIE] = zone
    words = read_words(get_page(client, run_address(run)))
    return words[words.index("Started ") :].partition(", ended")[0].strip()


@pytest.mark.django_db
class TestPages:
    @pytest.mark.parametrize(
        ("zone", "moment", "words"),
        [
            (None, WINTER, "Started 15 Jan 2026, 22:30:05 UTC"),
            ("Europe/Berlin", WINTER, "Started 15 Jan 2026, 23:30:05 CET"),
            ("Europe/Berlin", SUMMER, "Started 16 Jul 2026, 00:30:05 CEST"),
            ("America/New_York", SUMMER, "Started 15 Jul 2026, 18:30:05 EDT"),
            ("Asia/Kathmandu", WINTER, "Started 16 Jan 2026, 04:15:05 UTC+5:45"),
            ("America/Sao_Paulo", WINTER, "Started 15 Jan 2026, 19:30:05 UTC−3"),  # noqa: RUF001  # a minus sign
            # What browsers still call it.
            ("Asia/Calcutta", WINTER, "Started 16 Jan 2026, 04:00:05 IST"),
            ("Etc/GMT+12", WINTER, "Started 15 Jan 2026, 10:30:05 UTC−12"),  # noqa: RUF001
        ],
    )
    def test_times_are_in_the_zone_of_the_browser_and_name_it(
        self, viewer: Client, zone: str | None, moment: datetime, words: str
    ) -> None:
        assert started_line(viewer, moment, zone) == words

    @pytest.mark.parametrize(
        "zone",
        [
            "",
            "Mars/Olympus",
            "../../etc/passwd",
            "/etc/localtime",
            "europe/berlin",
            "Europe/",
            "é",
            "UTC\\x00",
            "a" * 3_000,
        ],
    )
    def test_a_cookie_that_names_no_zone_changes_nothing(self, viewer: Client, zone: str) -> None:
        assert started_line(viewer, WINTER, zone) == "Started 15 Jan 2026, 22:30:05 UTC"

    def test_an_installation_has_a_zone_for_who_tells_none(self, viewer: Client, settings: Any) -> None:
        settings.TIME_ZONE = "Europe/Lisbon"
        assert started_line(viewer, WINTER, None) == "Started 15 Jan 2026, 22:30:05 WET"
        assert started_line(viewer, WINTER, "Europe/Berlin") == "Started 15 Jan 2026, 23:30:05 CET"

    def test_how_long_ago_something_was_keeps_the_exact_time(self, viewer: Client) -> None:
        run = make_retried_run()
        Run.objects.filter(pk=run.pk).update(created_at=SUMMER)
        viewer.cookies[TIME_ZONE_COOKIE] = "Europe/Berlin"
        assert 'title="16 Jul 2026, 00:30:05 CEST"' in get_page(viewer, "/runs/")

    def test_the_overview_names_zones_without_letters_in_the_same_words(self, viewer: Client) -> None:
        run = make_retried_run(status="failed", ended_at=WINTER)
        assert run.has_ended
        viewer.cookies[TIME_ZONE_COOKIE] = "Asia/Kathmandu"
        assert 'title="16 Jan 2026, 04:15:05 UTC+5:45"' in get_page(viewer, "/")

    def test_pages_of_the_admin_are_in_it_too(self, client: Client) -> None:
        client.force_login(User.objects.create_superuser("ada"))
        run = make_retried_run()
        Run.objects.filter(pk=run.pk).update(created_at=SUMMER)
        address = f"/admin/runs/run/{run.pk}/change/"
        assert "15 Jul 2026, 22:30:05 UTC" in read_words(client.get(address).content.decode())
        client.cookies[TIME_ZONE_COOKIE] = "Asia/Tokyo"
        assert "16 Jul 2026, 07:30:05 JST" in read_words(client.get(address).content.decode())

    def test_the_page_to_sign_in_on_finds_out_the_zone(self, client: Client) -> None:
        assert "toolflow/js/times.js" in get_page(client, "/accounts/login/")


class TestMiddleware:
    @staticmethod
    def ask(zone: str, *, fail: bool = False) -> str:
        """The zone that was active while the request was answered."""
        found = []

        def answer(request: HttpRequest) -> HttpResponse:
            found.append(timezone.get_current_timezone_name())
            if fail:
                raise RuntimeError
            return HttpResponse()

        request = RequestFactory().get("/")
        request.COOKIES[TIME_ZONE_COOKIE] = zone
        if fail:
            with pytest.raises(RuntimeError):
                PageMiddleware(answer)(request)
        else:
            PageMiddleware(answer)(request)
        return found[0]

    @pytest.mark.parametrize("fail", [False, True])
    def test_one_request_leaves_nothing_behind_for_the_next(self, fail: bool) -> None:
        assert self.ask("Europe/Berlin", fail=fail) == "Europe/Berlin"
        assert timezone.get_current_timezone_name() == "UTC"
        assert self.ask("") == "UTC"

    def test_a_zone_that_was_active_before_comes_back(self) -> None:
        with timezone.override(ZoneInfo("Asia/Tokyo")):
            self.ask("Europe/Berlin")
            assert timezone.get_current_timezone_name() == "Asia/Tokyo"
