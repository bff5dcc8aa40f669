"""Backtests on pages: requesting one, its progress, what would have changed, and where else it is reported."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.test import Client

from flows.models import Flow
from runs.backtests import work
from runs.backtests.totals import Totals
from runs.models import Backtest
from runs.pages import backtests
from tests.engine.builders import make_attempt, make_issue
from tests.runs.backtest_rows import ask, backtest, finish, make_audited_flow, store_history, store_run
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_stored_run
from tests.runs.pages.reading import get_page, read_plain, read_poller

pytestmark = pytest.mark.django_db

LIST = "/flows/texts/backtests/"


def read_kinds(answer: Any) -> dict[str, list[int]]:
    """The runs that the page lists, by kind."""
    return {group["kind"]: [row.run_id for row, *_ in group["rows"]] for group in answer.context["groups"]}


class TestRequesting:
    def test_a_version_is_judged_over_filtered_runs(self, operator: Client) -> None:
        runs = store_history()
        fields = {"candidate": 1, "filters": "flow=texts&status=failed", "limit": "500"}
        answer: Any = operator.post(LIST, fields)
        found = Backtest.objects.get()
        assert answer["Location"] == f"/backtests/{found.pk}/"
        assert (found.version, found.run_ids, found.limit) == (runs[0].version, [runs[3].pk], 500)
        assert found.asked_by is not None

    @pytest.mark.parametrize(
        "fields",
        [
            {"candidate": "7"},
            {"candidate": ""},
            {"candidate": "9" * 18},
            {"candidate": "1", "limit": "0"},
            {"candidate": "1", "limit": "10001"},
            {"candidate": "1", "filters": "flow=other"},
            {"candidate": "1", "filters": "colour=red"},
        ],
    )
    def test_what_makes_no_sense_is_refused(self, operator: Client, fields: dict[str, str]) -> None:
        store_history()
        make_version(make_audited_flow(name="other", title="Other"))
        assert operator.post(LIST, fields).status_code == 400
        assert not Backtest.objects.exists()

    def test_without_runs_nothing_is_started(self, operator: Client) -> None:
        make_version(make_audited_flow())
        assert operator.post(LIST, {"candidate": "1"}).status_code == 409


class TestEditor:
    def post(self, client: Client, document: dict[str, Any], **headers: str) -> Any:
        flow = Flow.objects.get(name="texts")
        fields = {"document": json.dumps(document), "base_version": "1", "_backtest": ""}
        return client.post(f"/admin/flows/flow/{flow.pk}/change/", fields, headers=headers)

    def test_asks_about_what_is_not_saved(self, admin_client: Client) -> None:
        store_history()
        answer = self.post(admin_client, make_audited_flow(5).to_document(), Accept="application/json")
        found = Backtest.objects.get()
        assert json.loads(answer.content) == {"url": f"/backtests/{found.pk}/"}
        assert (found.version, found.base_version, found.digest) == (None, 1, make_audited_flow(5).digest)
        assert Flow.objects.get(name="texts").versions.count() == 1


class TestProgress:
    def test_the_page_follows_until_the_end(self, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(work, "BATCH_SIZE", 1)
        store_history()
        found = ask(make_audited_flow(5))
        poller = read_poller(get_page(operator, f"/backtests/{found.pk}/"))
        assert operator.get(poller).status_code == 204
        found.begin()
        work._Work(found).do_batch()
        part = get_page(operator, poller)
        assert 'value="25"' in part
        finish(found)
        part = get_page(operator, read_poller(part))
        assert "hx-get" not in part
        assert "backtest-said" in part


class TestPage:
    def test_says_what_would_have_changed(self, viewer: Client) -> None:
        runs = store_history()
        found = backtest(make_audited_flow(20))
        words = read_plain(viewer, f"/backtests/{found.pk}/")
        assert "Of 4 runs 2 end the same, 0 sooner, 2 would be refused (at least 2 more calls, about $0.0200)" in words
        answer: Any = viewer.get(f"/backtests/{found.pk}/")
        assert read_kinds(answer) == {"refused": [runs[1].pk, runs[0].pk]}
        (group,) = answer.context["groups"]
        assert f'"/runs/{runs[0].pk}/steps/1/attempts/1/"' in answer.content.decode()
        new = dict(group["rows"][1][3])["new"]
        assert [(issue["title"], issue["badge"].word) for issue in new] == [("Is long", "High")]
        assert answer.context["bar"] == [("refused", "0.00%", "50.00%"), ("same", "50.00%", "50.00%")]

    def test_texts_of_models_and_editors_are_isolated_and_inert(self, viewer: Client) -> None:
        spec = make_audited_flow()
        audit = spec.steps[0].audits[0].model_copy(update={"name": "<i>قصير جدا", "message": "'\u202e' + output.text"})
        step = spec.steps[0].model_copy(update={"audits": (audit,)})
        store_run(make_version(spec), "عربي", "long enough")
        lower = step.model_copy(update={"audits": (audit.model_copy(update={"rule": "true"}),)})
        harder = step.model_copy(update={"audits": (audit.model_copy(update={"rule": "false"}),)})
        for candidate in (lower, harder):
            found = backtest(spec.model_copy(update={"steps": (candidate,)}))
            page = get_page(viewer, f"/backtests/{found.pk}/")
            assert "<i>" not in page
            assert "\u202e" not in page
        assert '<bdi dir="rtl">&lt;i&gt;قصير جدا' in page

    def test_lists_a_kind_page_by_page(self, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(backtests, "PAGE_SIZE", 1)
        monkeypatch.setattr(backtests, "FIRST_ROWS", 1)
        runs = store_history()
        found = backtest(make_audited_flow(5))
        whole: Any = viewer.get(f"/backtests/{found.pk}/")
        (group,) = whole.context["groups"]
        assert (read_kinds(whole), group["has_more"]) == ({"sooner": [runs[2].pk]}, True)
        first: Any = viewer.get(f"/backtests/{found.pk}/?kind=sooner")
        second: Any = viewer.get(first.context["page"].older_url)
        assert (read_kinds(first), read_kinds(second)) == ({"sooner": [runs[2].pk]}, {"sooner": [runs[1].pk]})
        assert second.context["page"].older_url == ""
        runs[2].delete()
        # Totals count it still.
        assert not viewer.get(f"/backtests/{found.pk}/").context["groups"][0]["has_more"]

    def test_what_the_engine_found_has_its_code_for_a_name(self, viewer: Client) -> None:
        version = make_version(make_audited_flow())
        refused = make_attempt(1, 1, "invalid", output=None, issues=(make_issue(code="refusal", audit=""),))
        passed = make_attempt(1, 2, output={"text": "long enough"})
        make_stored_run(refused, passed, version=version, steps_passed=1, retry_count=1)
        found = backtest(make_audited_flow(8))
        assert [audit.audit for audit in Totals.from_document(found.totals).result.audits] == ["refusal"]

    def test_says_what_history_can_not_tell(self, viewer: Client) -> None:
        store_history()
        spec = make_audited_flow(5)
        step = spec.steps[0].model_copy(update={"system_message": "Write more."})
        found = backtest(spec.model_copy(update={"steps": (step,)}))
        assert viewer.get(f"/backtests/{found.pk}/").context["untestable"]  # type: ignore[index]  # of a test client


class TestElsewhere:
    def test_the_flow_page_says_what_each_audit_costs(self, operator: Client) -> None:
        version = store_history()[0].version
        assert operator.get("/flows/texts/").context["audits"]["without"] is None  # type: ignore[index]  # as above
        answer: Any = operator.post("/flows/texts/versions/1/without-each/", follow=True)
        found = Backtest.objects.get()
        assert (found.version, found.leaves_out_each) == (version, True)
        assert answer.redirect_chain[-1][0] == "/flows/texts/#audits"
        poller = re.search('id="audits"[^>]* hx-get="([^"]*)"', answer.content.decode())
        assert poller is not None
        finish(found)
        page = get_page(operator, poller[1])
        assert 'id="audits"' in page and "hx-get" not in page
        rows = operator.get("/flows/texts/").context["audits"]["rows"]  # type: ignore[index]  # as above
        without = {row["name"]: row["without"] for row in rows}
        minus = "\N{MINUS SIGN}"
        assert without == {
            "Is long": {
                "retries": f"{minus}6 retries",
                "lines": [f"2 runs of 4 sooner, {minus}$0.0600", "1 run that never passed would pass here"],
                "tone": "errored",
                "only_costs": False,
            },
            "Has no x": {"retries": "0 retries", "lines": ["all 4 judged the same"], "tone": "quiet"},
        }
        assert f"/backtests/{found.pk}/" not in get_page(operator, LIST)

    def test_nothing_is_said_of_audits_whose_runs_can_not_be_judged(self, operator: Client) -> None:
        version = make_version(make_audited_flow(5))
        store_run(version, "short", "long enough")  # judged otherwise than by its version
        backtest(version, leaves_out_each=True)
        audits = operator.get("/flows/texts/").context["audits"]  # type: ignore[index]  # as above
        assert [row["without"] for row in audits["rows"] if row["line"]] == [None, None]
        assert (audits["judged"], audits["unjudged"]) == (0, ["1 not as stored, or too slow"])

    def test_version_and_make_live_show_the_prediction(self, admin_client: Client) -> None:
        store_history()
        found = backtest(make_audited_flow(5))
        version = make_version(make_audited_flow(5))
        for address in (
            f"/flows/texts/versions/{version.number}/",
            f"/admin/flows/flow/{version.flow_id}/versions/{version.number}/make-live/",
        ):
            page = get_page(admin_client, address)
            assert f"/backtests/{found.pk}/" in page
            assert "\N{MINUS SIGN}50 %" in page
            assert ("after 10 runs (0 so far)" in page) == address.startswith("/flows/")
