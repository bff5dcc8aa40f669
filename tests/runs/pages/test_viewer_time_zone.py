"""Times as the clock of the viewer shows them."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.utils import timezone

from runs.models import Run
from tests.runs.pages.history_builders import make_retried_run
from tests.runs.pages.reading import get_page, read_words, run_address
from toolflow_site.middleware import TIME_ZONE_COOKIE, PageMiddleware

pytestmark = [pytest.mark.sql, pytest.mark.django_db]

WINTER = datetime(2026, 1, 15, 22, 30, 5, tzinfo=UTC)
SUMMER = datetime(2026, 7, 15, 22, 30, 5, tzinfo=UTC)


def read_begin(client: Client, moment: datetime, zone: str | None) -> str:
    """What the page of a run that started then says of its start."""
    run = Run.objects.first() or make_retried_run()
    Run.objects.filter(pk=run.pk).update(started_at=moment)
    client.cookies.pop(TIME_ZONE_COOKIE, None)
    if zone is not None:
        client.cookies[TIME_ZONE_COOKIE] = zone
    words = read_words(get_page(client, run_address(run)))
    return words[words.index("Started ") :].partition(", ended")[0].strip()


@pytest.mark.parametrize(
    ("zone", "moment", "words"),
    [
        (None, WINTER, "15 Jan 2026, 22:30:05 UTC"),
        ("Europe/Berlin", WINTER, "15 Jan 2026, 23:30:05 CET"),
        ("Europe/Berlin", SUMMER, "16 Jul 2026, 00:30:05 CEST"),
        ("Asia/Kathmandu", WINTER, "16 Jan 2026, 04:15:05 UTC+5:45"),
        ("America/Sao_Paulo", WINTER, "15 Jan 2026, 19:30:05 UTC−3"),  # noqa: RUF001  # a minus sign
        # What browsers still call it.
        ("Asia/Calcutta", WINTER, "16 Jan 2026, 04:00:05 IST"),
        # What names no zone changes nothing.
        *(
            (zone, WINTER, "15 Jan 2026, 22:30:05 UTC")
            for zone in ("", "Mars/Olympus", "../../etc/passwd", "a" * 3_000)
        ),
        *((zone, WINTER, "15 Jan 2026, 22:30:05 UTC") for zone in ("europe/berlin", "Europe/", "é", "UTC\\x00")),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else None,
)
def test_times_are_in_the_zone_of_the_browser_and_name_it(
    viewer: Client, zone: str | None, moment: datetime, words: str
) -> None:
    assert read_begin(viewer, moment, zone) == f"Started {words}"


def test_lists_and_the_admin_are_in_it_too(admin_client: Client) -> None:
    run = make_retried_run()
    Run.objects.filter(pk=run.pk).update(created_at=SUMMER)
    address = f"/admin/runs/run/{run.pk}/change/"
    assert "15 Jul 2026, 22:30:05 UTC" in read_words(admin_client.get(address).content.decode())
    admin_client.cookies[TIME_ZONE_COOKIE] = "Asia/Tokyo"
    assert "16 Jul 2026, 07:30:05 JST" in read_words(admin_client.get(address).content.decode())
    assert 'title="16 Jul 2026, 07:30:05 JST"' in get_page(admin_client, "/runs/")


@pytest.mark.parametrize("fails", [False, True])
def test_one_request_leaves_nothing_behind_for_the_next(fails: bool) -> None:
    def answer(request: HttpRequest) -> HttpResponse:
        assert timezone.get_current_timezone_name() == "Europe/Berlin"
        if fails:
            raise RuntimeError
        return HttpResponse()

    request = RequestFactory().get("/")
    request.COOKIES[TIME_ZONE_COOKIE] = "Europe/Berlin"
    with timezone.override(ZoneInfo("Asia/Tokyo")):
        try:
            PageMiddleware(answer)(request)
        except RuntimeError:
            assert fails
        assert timezone.get_current_timezone_name() == "Asia/Tokyo"
