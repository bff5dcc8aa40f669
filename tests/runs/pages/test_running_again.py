"""Running a run again from the browser: what the new run keeps, which run it names, and where no version is live."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db.models import QuerySet
from django.http import HttpResponse
from django.test import Client

from flows.models import Flow, FlowVersion
from runs.models import Run
from runs.pages.comparing import CHOICES
from runs.submission import submit_run
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow, make_stored_run
from tests.runs.pages.reading import count_queries, get_page, read_words, run_address

pytestmark = pytest.mark.django_db

ADDRESS = "/runs/new/colour-theme/"
SENT = {"view": "json", "json": '{"brand": "Nordwind"}'}
HOOK = "https://hooks.example.com/T0/key-of-ada"


@pytest.fixture
def flow() -> Flow:
    return make_version(make_page_flow()).flow


def make_ended(flow: Flow, **fields: Any) -> Run:
    run = submit_run(flow=flow, input={"brand": "Nordwind"}, **fields)
    assert run.request_cancel()
    return run


def send(client: Client, status: int, **fields: Any) -> str:
    answer: HttpResponse = client.post(ADDRESS, {**SENT, **fields})  # type: ignore[assignment]  # the test client adds to it
    assert answer.status_code == status
    return answer.content.decode()


def start_again(client: Client, run: Run, **fields: Any) -> Run:
    """Send the form of ``run``; gives the run that this starts."""
    send(client, 302, **{"from": run.pk}, **fields)
    return Run.objects.latest("pk")


class TestKeeping:
    @pytest.mark.parametrize(
        ("given", "names"),
        [
            ({"metadata": {"order": 4711}, "webhook_url": HOOK}, "the metadata and the webhook"),
            ({"metadata": {"order": 4711}}, "the metadata"),
            ({"webhook_url": HOOK}, "the webhook"),
        ],
    )
    def test_the_form_says_what_the_new_run_keeps_and_it_does(
        self, operator: Client, flow: Flow, given: dict[str, Any], names: str
    ) -> None:
        run = make_ended(flow, **given)
        page = get_page(operator, f"{ADDRESS}?from={run.pk}")
        assert f"Keep {names} of run #{run.pk}" in read_words(page)
        assert '<input type="checkbox" name="keep" checked>' in page
        assert "key-of-ada" not in page
        again = start_again(operator, run, keep="on")
        assert (again.metadata, again.webhook_url) == (run.metadata, run.webhook_url)

    def test_whoever_unticks_the_box_starts_a_run_without_them(self, operator: Client, flow: Flow) -> None:
        run = make_ended(flow, metadata={"order": 4711}, webhook_url=HOOK)
        again = start_again(operator, run)
        assert (again.metadata, again.webhook_url, again.again_of) == ({}, "", run.pk)

    def test_the_box_stays_as_it_was_left_when_the_form_comes_back(self, operator: Client, flow: Flow) -> None:
        run = make_ended(flow, metadata={"order": 4711})
        for kept, drawn in (({"keep": "on"}, " checked"), ({}, "")):
            for page in (
                send(operator, 422, **{"from": run.pk, "time_limit": "soon"}, **kept),
                send(operator, 200, **{"from": run.pk, "switch": ""}, **kept),
                send(operator, 200, **{"from": run.pk, "take": "1"}, **kept),
            ):
                assert f'<input type="checkbox" name="keep"{drawn}>' in page

    def test_nothing_is_asked_where_there_is_nothing_to_keep(self, operator: Client, flow: Flow) -> None:
        run = make_ended(flow)
        for address in (ADDRESS, f"{ADDRESS}?from={run.pk}"):
            assert 'name="keep"' not in get_page(operator, address)

    def test_a_webhook_that_can_not_be_told_any_more_is_named_and_keeps_nobody_from_starting(
        self, operator: Client, flow: Flow
    ) -> None:
        run = make_ended(flow, metadata={"order": 4711})
        Run.objects.update(webhook_url="https://hooks.example.com:25/T0")
        words = read_words(get_page(operator, f"{ADDRESS}?from={run.pk}"))
        assert f"The webhook of run #{run.pk} can’t be told any more: The port 25 is not one for" in words
        assert "one above 1024. The new run goes without it." in words
        assert f"Keep the metadata of run #{run.pk}" in words
        again = start_again(operator, run, keep="on")
        assert (again.metadata, again.webhook_url) == ({"order": 4711}, "")

    def test_metadata_that_could_not_be_given_today_is_named_too(self, operator: Client, flow: Flow) -> None:
        run = make_ended(flow)
        Run.objects.update(metadata={"x": "y" * 20_000})
        words = read_words(get_page(operator, f"{ADDRESS}?from={run.pk}"))
        assert f"The metadata of run #{run.pk} can’t be kept: Metadata may have 16,384 bytes" in words
        assert start_again(operator, run, keep="on").metadata == {}


class TestNamingTheRunBefore:
    def test_the_new_run_names_the_one_it_repeats_and_leads_to_both_side_by_side(
        self, operator: Client, flow: Flow
    ) -> None:
        run = make_ended(flow)
        again = start_again(operator, run)
        page = get_page(operator, run_address(again))
        assert f"Again of #{run.pk} · Compare both" in read_words(page)
        assert f'Again of <a href="/runs/{run.pk}/">' in page
        assert f'<a href="/runs/compare/?a={run.pk}&amp;b={again.pk}">Compare both</a>' in page
        assert "Again of" not in get_page(operator, run_address(run))

    def test_a_run_that_is_gone_is_named_without_a_link(self, operator: Client, flow: Flow) -> None:
        run = make_ended(flow)
        again = start_again(operator, run)
        Run.objects.filter(pk=run.pk).delete()
        page = get_page(operator, run_address(again))
        assert f"Again of #{run.pk}, which is gone." in read_words(page)
        assert f'href="/runs/{run.pk}/"' not in page

    def test_the_name_costs_no_query(self, viewer: Client) -> None:
        first = make_stored_run()
        again = make_stored_run(again_of=first.pk)
        assert count_queries(viewer, run_address(again)) == count_queries(viewer, run_address(first))

    def test_it_is_the_first_that_is_offered_for_comparison_however_many_came_since(self, viewer: Client) -> None:
        first = make_stored_run()
        others = [make_stored_run() for _ in range(CHOICES + 2)]
        again = make_stored_run(again_of=first.pk)
        page = get_page(viewer, f"/runs/compare/?a={again.pk}")
        offered = [int(number) for number in re.findall(rf"\?a={again.pk}&amp;b=(\d+)", page)]
        assert offered == [first.pk, *(run.pk for run in others[: -CHOICES - 1 : -1])]
        assert f"#{first.pk} which #{again.pk} repeats" in read_words(page)

    def test_it_is_offered_once_if_it_is_one_of_the_latest(self, viewer: Client) -> None:
        first, between = make_stored_run(), make_stored_run()
        again = make_stored_run(again_of=first.pk)
        page = get_page(viewer, f"/runs/compare/?a={again.pk}")
        assert re.findall(rf"\?a={again.pk}&amp;b=(\d+)", page) == [str(first.pk), str(between.pk)]


class TestWithoutALiveVersion:
    @pytest.fixture
    def run(self, flow: Flow) -> Run:
        run = make_ended(flow)
        Flow.objects.update(live_version=None)
        return run

    def test_the_version_of_the_run_is_what_its_page_offers_and_it_runs(self, operator: Client, run: Run) -> None:
        page = get_page(operator, run_address(run))
        address = f"{ADDRESS}?from={run.pk}&version=1"
        assert f'href="{address.replace("&", "&amp;")}"' in page
        assert 'id="again"' not in page
        words = read_words(get_page(operator, address))
        assert "Version 1; no version is live." in words
        assert "The live one is" not in words and "Nordwind" in words
        again = start_again(operator, run, version="1")
        assert (again.version, again.again_of) == (run.version, run.pk)

    def test_another_version_can_be_taken_and_left_again(self, operator: Client, run: Run) -> None:
        make_version(make_page_flow(title="Second"))
        Flow.objects.update(live_version=None)
        words = read_words(get_page(operator, f"{ADDRESS}?from={run.pk}&version=2"))
        assert f"Runs with version 2 . Run #{run.pk} had version 1." in words
        assert "Take version 1" in words
        fields = {"from": run.pk, "version": "2"}
        assert '<input type="hidden" name="version" value="1">' in send(operator, 200, **fields, take="1")
        page = send(operator, 200, **fields, take="9")
        assert '<input type="hidden" name="version" value="2">' in page
        assert "There is no version 9 of this flow." in read_words(page)

    @pytest.mark.parametrize("asked", ["", "version=9", "from={}&version=9"])
    def test_without_a_version_that_there_is_nothing_can_run(self, operator: Client, run: Run, asked: str) -> None:
        answer = operator.get(f"{ADDRESS}?{asked.format(run.pk)}")
        words = read_words(answer.content.decode())
        assert answer.status_code == 409
        assert "It has no live version yet." in words
        assert ("There is no version 9 of this flow." in words) == ("version" in asked)

    def test_a_version_that_can_not_be_read_does_not_lead_to_a_live_one(self, operator: Client, run: Run) -> None:
        # Versions never change: a later release made this one.
        QuerySet.update(FlowVersion.objects.all(), spec={"steps": 7})
        answer = operator.get(f"{ADDRESS}?from={run.pk}&version=1")
        words = read_words(answer.content.decode())
        assert answer.status_code == 409
        assert "can’t read version 1." in words and "live version" not in words
