"""Runs whose attempts have thousands of issues: pages stay short, and read whole only what they show."""

from __future__ import annotations

import re
from collections.abc import Collection
from html import unescape
from typing import Any
from urllib.parse import urljoin

import pytest
from django.test import Client

from flows.engine.history import Attempt
from runs import models
from runs.models import Run, RunStatus
from runs.pages.issue_pages import MOST_ISSUES
from tests.engine.builders import make_attempt, make_issue, make_step
from tests.runs.pages.history_builders import begin_attempt, make_asked_run, make_page_flow, make_stored_run
from tests.runs.pages.reading import HTMX, get_page, read_words, run_address

pytestmark = pytest.mark.django_db

MANY = 3_000


@pytest.fixture
def full_rows(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The issues that are read with all that they hold, one entry each."""
    read: list[Any] = []
    build = models.Issue.from_db

    def note(db: str | None, names: Collection[str], values: Collection[Any]) -> models.Issue:
        issue = build(db, names, values)
        if "context" in names:
            read.append(issue)
        return issue

    monkeypatch.setattr(models.Issue, "from_db", note)
    return read


def make_failed(number: int, count: int = MANY, step: int = 1) -> Attempt:
    """An attempt with so many issues, of which every tenth is critical; those come last."""
    issues = tuple(
        make_issue(
            "critical" if place >= count - count // 10 else "low",
            f"Item {place} is wrong.",
            audit="Items",
            path=f"/items/{place}",
            context={"place": place},
        )
        for place in range(count)
    )
    return make_attempt(step, number, "failed", output={"items": list(range(count))}, issues=issues)


@pytest.fixture
def run(db: None) -> Run:
    return make_stored_run(*(make_failed(number) for number in (1, 2, 3)), status=RunStatus.FAILED)


def list_shown(page: str) -> list[str]:
    """The ids of the issues that a page shows."""
    return re.findall(r'<li class="issue" id="([^"]+)"', page)


class TestRunPage:
    def test_the_page_of_a_run_stays_short(self, viewer: Client, run: Run, full_rows: list[Any]) -> None:
        page = get_page(viewer, run_address(run))
        assert len(page) < 500_000
        assert len(full_rows) <= MOST_ISSUES
        assert "3 000 issues: all persisted" in read_words(page)

    def test_filter_and_chips_count_all_issues(self, viewer: Client, run: Run) -> None:
        words = read_words(get_page(viewer, run_address(run)))
        assert "Critical 900 High 0 Medium 0 Low 8100" in words

    def test_an_attempt_that_fits_comes_with_the_page_and_is_whole(self, viewer: Client, full_rows: list[Any]) -> None:
        run = make_stored_run(
            *(make_failed(number) for number in (1, 2)), make_failed(1, 5, step=2), status=RunStatus.FAILED
        )
        page = get_page(viewer, run_address(run))
        assert list_shown(page) == [f"s2a1-i{place}" for place in range(5)]
        assert "&quot;place&quot;</span>: 4" in page
        assert len(full_rows) == 5


class TestOneAttempt:
    def test_the_gravest_issues_are_shown_with_a_sentence_about_the_others(
        self, viewer: Client, run: Run, full_rows: list[Any]
    ) -> None:
        page = get_page(viewer, f"{run_address(run)}steps/1/attempts/2/", headers=HTMX)
        assert len(page) < 1_000_000
        assert list_shown(page) == [f"s1a2-i{place}" for place in range(2_700, 2_900)]
        assert len(full_rows) == MOST_ISSUES
        assert "These are the gravest 200 of 3 000 issues; there are 2 800 more." in read_words(page)
        assert f'<a href="{run_address(run)}steps/1/attempts/2/?issues=2" rel="next">' in page

    def test_all_issues_can_be_reached_beside_their_output(self, viewer: Client, run: Run) -> None:
        address = f"{run_address(run)}steps/1/attempts/1/"
        seen: list[str] = []
        asked: str | None = address
        while asked:
            page = get_page(viewer, asked)
            seen += list_shown(page)
            following = re.search(r'<a href="([^"]+)" rel="next">', page)
            asked = following and following[1]
        assert len(seen) == len(set(seen)) == MANY
        assert seen[300] == "s1a1-i0"
        words = read_words(page)
        assert "These are issues 2 801 to 3 000 of 3 000, by severity." in words
        assert "Graver issues" in words and "Further issues" not in words
        assert "/items/2699, line 2702" in words

    def test_what_became_of_them_is_told(self, viewer: Client, run: Run) -> None:
        words = read_words(get_page(viewer, f"{run_address(run)}steps/1/attempts/2/?issues=3"))
        assert words.count("Persisted since attempt 1") == words.count("Still there in attempt 3") == 200

    def test_what_changed_is_shown_beside_the_issues_of_the_same_page(self, viewer: Client) -> None:
        first = make_attempt(1, 1, "failed", output={"items": []})
        run = make_stored_run(first, make_failed(2, 450), status=RunStatus.FAILED)
        address = f"{run_address(run)}steps/1/attempts/2/"
        page = get_page(viewer, f"{address}?issues=2")
        # The form of a browser without scripts, and what a script asks for.
        assert '<input type="hidden" name="issues" value="2">' in page
        assert f'data-address="{address}?issues=2"' in page
        on_it = {**HTMX, "HX-Current-URL": f"http://testserver{address}?issues=2"}
        for shown in (
            get_page(viewer, f"{address}?issues=2&diff=s1a2"),
            get_page(viewer, f"{address}?issues=2&diff=s1a2", headers=on_it),
        ):
            pane = shown.partition('id="s1a2-output"')[2].partition('<div class="attempt-issues">')[0]
            targets = set(re.findall(r'class="line-link" href="#([^"]+)"', pane))
            assert targets == set(list_shown(shown)) and len(targets) == MOST_ISSUES
            assert f'Since <a href="{run_address(run)}#s1a1">attempt 1</a>' in pane
            assert f'action="{address}#s1a2"' in pane and f'data-address="{address}?issues=2"' in pane

    def test_on_the_page_of_the_run_links_stay_there(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1, "failed", output={"a": 1}), make_attempt(1, 2, output={"a": 2}))
        on_it = {**HTMX, "HX-Current-URL": f"http://testserver{run_address(run)}?diff=s1a2"}
        part = get_page(viewer, f"{run_address(run)}steps/1/attempts/2/?diff=s1a2", headers=on_it)
        assert 'Since <a href="#s1a1">attempt 1</a>' in part
        assert f'action="{run_address(run)}#s1a2"' in part

    @pytest.mark.parametrize("asked", ["16", "999999", "0", "-1", "x", "1.5", "", "9" * 30])
    def test_a_page_that_is_not_there_is_not_found(self, viewer: Client, run: Run, asked: str) -> None:
        assert viewer.get(f"{run_address(run)}steps/1/attempts/1/?issues={asked}").status_code == 404

    def test_few_issues_have_no_pages(self, viewer: Client) -> None:
        run = make_stored_run(make_failed(1, MOST_ISSUES), status=RunStatus.FAILED)
        page = get_page(viewer, f"{run_address(run)}steps/1/attempts/1/")
        assert len(list_shown(page)) == MOST_ISSUES
        assert "further-issues" not in page

    def test_issues_of_other_steps_are_read_only_where_the_model_was_told_of_them(
        self, viewer: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spec = make_page_flow(make_step(1), make_step(2), make_step(3, include_results=[1]))
        low = make_issue("low")
        run = make_stored_run(
            make_attempt(1, 1, issues=(low,)),
            make_attempt(2, 1, issues=(low, low)),
            make_attempt(3, 1, issues=(low, low, low)),
            spec=spec,
        )
        read: list[int] = []
        from_db = models.Issue.from_db.__func__

        def counted(cls: Any, *args: Any) -> Any:
            issue = from_db(cls, *args)
            read.append(issue.attempt_id)
            return issue

        monkeypatch.setattr(models.Issue, "from_db", classmethod(counted))
        page = get_page(viewer, f"{run_address(run)}steps/3/attempts/1/")
        assert len(read) == 4
        assert "Hidden from the model by filter high : 1 issue" in read_words(page)
        read.clear()
        get_page(viewer, f"{run_address(run)}steps/2/attempts/1/")
        assert len(read) == 2


def list_targets(viewer: Client, address: str, begin: str) -> list[str]:
    """Where links to issues lead that stand on a page behind ``begin``, each in its item of a list."""
    page = get_page(viewer, address)
    links = re.findall(r'<a href="([^"]*#s\da\d-i\d+)"', page[page.index(begin) :].partition("</ul>")[0])
    return [urljoin(address, unescape(link)) for link in links]


def list_marks(viewer: Client, address: str, words: str) -> list[str]:
    """Where the links lead that say what became of issues, behind ``words``."""
    links = re.findall(f'{words}<a href="([^"]+)"', get_page(viewer, address))
    return [urljoin(address, unescape(link)) for link in links]


def assert_leads_to_its_line(viewer: Client, target: str) -> None:
    address, _, anchor = target.partition("#")
    assert f'<li class="issue" id="{anchor}"' in get_page(viewer, address), target


class TestLinks:
    """Links to issues beyond the first page of their attempt lead to the page that has them."""

    def test_what_became_of_an_issue_leads_to_the_issue_in_the_other_attempt(self, viewer: Client, run: Run) -> None:
        address = f"{run_address(run)}steps/1/attempts/2/?issues=15"
        for words in ("Persisted since ", "Still there in "):
            targets = list_marks(viewer, address, words)
            assert len(targets) == MOST_ISSUES
            assert {target.partition("#")[0].rpartition("?")[2] for target in targets} == {"issues=15"}
            for target in targets[::150]:
                assert_leads_to_its_line(viewer, target)

    def test_on_the_page_of_the_run_as_well(self, viewer: Client) -> None:
        more = tuple(make_issue("low", audit="Items", path=f"/items/{place}") for place in range(MOST_ISSUES + 5))
        run = make_stored_run(
            make_attempt(1, 1, "failed", issues=more),
            make_attempt(1, 2, "failed", issues=more[-1:]),
            make_attempt(1, 3),
        )
        (target,) = list_marks(viewer, run_address(run), "Persisted since ")
        assert target == f"{run_address(run)}steps/1/attempts/1/?issues=2#s1a1-i204"
        assert_leads_to_its_line(viewer, target)

    def test_what_was_fixed_and_what_was_hidden_from_the_model(self, viewer: Client) -> None:
        grave = tuple(make_issue("high", audit="Items", path=f"/items/{place}") for place in range(MOST_ISSUES))
        spec = make_page_flow(make_step(1, issue_severity_filter="high"))
        run = make_asked_run(spec, 2, issues=(make_issue("low", audit="Tone"), *grave))
        own = f"{run_address(run)}steps/1/attempts/3/"
        for address in (own, f"{own}request/?hide=low"):
            first, second = list_targets(viewer, address, "Hidden from the model")
            assert first == f"{run_address(run)}steps/1/attempts/1/?issues=2#s1a1-i0"
            assert_leads_to_its_line(viewer, first)
            assert_leads_to_its_line(viewer, second)
        fixed = list_targets(viewer, own, "Fixed here")
        assert fixed[0] == f"{run_address(run)}#s1a2-i1"

    def test_the_lines_that_a_model_was_told(self, viewer: Client) -> None:
        issues = tuple(make_issue("high", audit="Items", path=f"/{place}") for place in range(MOST_ISSUES))
        run = make_asked_run(make_page_flow(make_step(1)), issues=(*issues, make_issue("critical", audit="Tone")))
        targets = list_targets(viewer, f"{run_address(run)}steps/1/attempts/2/request/", "feedback-line")
        assert len(targets) == MOST_ISSUES
        assert targets[0] == f"{run_address(run)}#s1a1-i0"
        assert targets[-1] == f"{run_address(run)}steps/1/attempts/1/?issues=2#s1a1-i199"
        assert_leads_to_its_line(viewer, targets[-1])

    def test_an_issue_is_found_by_its_position(self, viewer: Client, run: Run) -> None:
        own = f"{run_address(run)}steps/1/attempts/1/"
        for position, page in ((2_700, 1), (2_899, 1), (2_900, 2), (0, 2), (100, 3), (2_699, 15)):
            answer = viewer.get(f"{own}?issue={position}")
            where = run_address(run) if page == 1 else f"{own}?issues={page}"
            assert answer.status_code == 302
            assert answer["Location"] == f"{where}#s1a1-i{position}"
        for position in ("3000", "-1", "x", "", "1.0", "9" * 30):
            assert viewer.get(f"{own}?issue={position}").status_code == 404

    def test_the_admin_leads_to_them_too(self, admin_client: Client, run: Run) -> None:
        issue = models.Issue.objects.get(attempt__step__run=run, attempt__number=1, position=100)
        page = admin_client.get(f"/admin/runs/issue/{issue.pk}/change/").content.decode()
        link = f"{run_address(run)}steps/1/attempts/1/?issue=100"
        assert f'<a href="{link}">Step 1, attempt 1</a>' in page
        assert_leads_to_its_line(admin_client, admin_client.get(link)["Location"])


class TestLiveUpdates:
    def ask(self, viewer: Client, run: Run, seen: str) -> str:
        answer = viewer.get(f"{run_address(run)}live?revision=1&seen={seen}", headers=HTMX)
        assert answer.status_code == 200
        return answer.content.decode()

    def test_an_update_reads_no_issue_whole_that_it_does_not_show(self, viewer: Client, full_rows: list[Any]) -> None:
        run = make_stored_run(*(make_failed(number) for number in (1, 2)), status=RunStatus.RUNNING)
        begin_attempt(run, 1, 3)
        update = self.ask(viewer, run, "1.2")
        assert len(update) < 200_000
        assert full_rows == []
        # The chips of all attempts are drawn anew.
        assert "Attempt 1: Failed, 300 critical, 2700 low" in update

    def test_the_head_of_the_step_that_was_known_last_keeps_its_sum(self, viewer: Client) -> None:
        issue = make_issue("high", audit="Tone")
        run = make_stored_run(
            make_attempt(1, 1, "failed", issues=(issue,)), make_attempt(1, 2), status=RunStatus.RUNNING
        )
        begin_attempt(run, 2, 1)
        update = self.ask(viewer, run, "1.2")
        assert "1 issue: fixed by attempt 2" in read_words(update)
        assert "Attempt 1: Failed, 1 high" in update

    def test_an_update_reads_no_output_of_attempts_that_it_does_not_send(
        self, viewer: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = make_stored_run(make_attempt(1, 1), make_attempt(2, 1), status=RunStatus.RUNNING)
        read: list[str] = []
        monkeypatch.setattr(
            "runs.pages.run_page.read_outputs",
            lambda rows: read.extend(f"{row.step.index}.{row.number}" for row in rows),
        )
        monkeypatch.setattr("runs.pages.attempt_view.list_what_came", lambda row: None)
        self.ask(viewer, run, "1.1")
        assert read == ["2.1"]


def test_the_page_in_the_admin_shows_the_gravest_too(admin_client: Client, run: Run) -> None:
    attempt = models.Attempt.objects.get(step__run=run, number=1)
    page = admin_client.get(f"/admin/runs/attempt/{attempt.pk}/change/").content.decode()
    assert len(list_shown(page)) == MOST_ISSUES
    assert "These are the gravest 200" in page
    assert 'rel="next"' not in page
