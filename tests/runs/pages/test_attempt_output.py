"""One attempt by itself: the part of the run page that is loaded when it is opened, and a page of its own."""

from __future__ import annotations

import json
import re

import pytest
from django.test import Client

from runs.models import Run, RunStatus
from tests.engine.builders import make_attempt, make_issue
from tests.runs.pages.history_builders import begin_attempt, make_retried_run, make_stored_run
from tests.runs.pages.reading import HTMX, count_queries, get_page, read_words, run_address

pytestmark = pytest.mark.django_db


def attempt_address(run: Run, step: int, number: int) -> str:
    return f"{run_address(run)}steps/{step}/attempts/{number}/"


class TestAttempt:
    def test_its_output_and_issues_come_without_the_page_around_them(self, viewer: Client) -> None:
        part = get_page(viewer, attempt_address(make_retried_run(), 1, 1), headers=HTMX)
        assert "<html" not in part
        assert "“red” is no hex colour." in part
        assert '<a class="line-link" href="#s1a1-i0"' in part
        assert "Fixed by attempt 2" in read_words(part)

    def test_a_line_that_several_issues_point_at_leads_to_each(self, viewer: Client) -> None:
        issues = [make_issue("high", audit=f"Audit <{number}>", path="/text") for number in range(7)]
        run = make_stored_run(
            make_attempt(1, 1, "failed", output={"text": "x"}),
            make_attempt(1, 2, "failed", output={"text": "y"}, issues=tuple(issues)),
        )
        for query in ("", "?diff=1"):
            part = get_page(viewer, f"{attempt_address(run, 1, 2)}{query}", headers=HTMX)
            line = part[part.index('id="s1a2-l2"') :].partition("\n</span>")[0]
            assert re.findall(r'href="#(\S+)"', line) == [f"s1a2-i{number}" for number in (0, 0, 1, 2, 3, 4, 5)]
            shown = "; ".join(f"High: Audit &lt;{number}&gt;" for number in range(5))
            assert f'aria-label="Line 2, 7 issues: {shown}; 2 more"' in line
            assert 'data-more="2" aria-label="2 more issues of line 2"></a>' in line
            # What is copied is the output and nothing else.
            assert read_words(line.partition(">")[2]) in ('"text" : "y"', '~ Changed: "text" : "x" → "y"')

    def test_an_output_that_is_invalid_is_headed_so(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1, "invalid", output={"text": 1}), make_attempt(1, 2, "failed"))
        head = "Output (invalid: audits did not look at it)"
        assert head in get_page(viewer, attempt_address(run, 1, 1))
        assert head not in get_page(viewer, attempt_address(run, 1, 2))

    def test_without_scripts_it_is_a_page_of_its_own(self, viewer: Client) -> None:
        run = make_retried_run()
        page = get_page(viewer, attempt_address(run, 1, 1))
        assert "<html" in page and "“red” is no hex colour." in page
        assert f"Colour theme #{run.pk}, step 1 “Step 1”." in read_words(page)
        assert f'href="/runs/{run.pk}/#s1a1"' in page

    def test_a_closed_attempt_says_where_it_is_loaded_from(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1, "errored"), make_attempt(1, 2))
        page = get_page(viewer, run_address(run))
        address = attempt_address(run, 1, 1)
        assert f'data-load="{address}"' in page and f'href="{address}">Open on a page of its own</a>' in page
        assert "The provider failed (500)." not in page
        assert "The provider failed (500)." in get_page(viewer, address, headers=HTMX)

    @pytest.mark.parametrize(("step", "number"), [(1, 9), (9, 1), (0, 1)])
    def test_there_is_none_that_was_not_made(self, viewer: Client, step: int, number: int) -> None:
        assert viewer.get(attempt_address(make_retried_run(), step, number)).status_code == 404

    def test_it_costs_as_many_queries_as_the_page_of_its_run(self, viewer: Client) -> None:
        run = make_retried_run()
        assert count_queries(viewer, attempt_address(run, 1, 1)) == count_queries(viewer, run_address(run)) == 7


class TestDownload:
    def test_an_output_of_more_than_a_megabyte_is_cut_and_can_be_downloaded_whole(self, viewer: Client) -> None:
        output = {"text": "word " * 300_000, "after": "the end"}
        run = make_stored_run(make_attempt(1, 1, "failed", output=output))
        address = attempt_address(run, 1, 1)
        part = get_page(viewer, address, headers=HTMX)
        assert len(part) < 1_100_000
        assert "Only the beginning is shown" in part and "the end" not in part
        assert "Here ends what is shown of 1.4 MB. Download all of it" in read_words(part)
        assert f'href="{address}?download"' in part
        answer = viewer.get(f"{address}?download")
        assert json.loads(answer.content) == output
        disposition = f'attachment; filename="run-{run.pk}-step-1-attempt-1-output.json"'
        assert answer.headers["Content-Disposition"] == disposition
        assert answer.headers["Content-Type"] == "application/json"

    def test_what_came_back_instead_of_an_output_can_be_downloaded_too(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1, "invalid", raw_output="no JSON – süß"), status=RunStatus.FAILED)
        answer = viewer.get(f"{attempt_address(run, 1, 1)}?download")
        assert answer.content.decode() == '"no JSON – süß"'

    def test_the_input_of_a_run_is_that_of_step_zero(self, viewer: Client) -> None:
        run = make_retried_run()
        address = f"{attempt_address(run, 0, 1)}?download"
        assert f'href="{address}"' in get_page(viewer, run_address(run))
        assert viewer.get(address).json() == {"topic": "tea"}

    def test_there_is_nothing_to_download_of_an_attempt_that_brought_nothing(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1, "errored"), status=RunStatus.RUNNING)
        begin_attempt(run, 2, 1)
        for address in (attempt_address(run, 1, 1), attempt_address(run, 2, 1), attempt_address(run, 3, 1)):
            assert viewer.get(f"{address}?download").status_code == 404
        assert viewer.get("/runs/999/steps/0/attempts/1/?download").status_code == 404


class TestChanges:
    @pytest.fixture
    def run(self) -> Run:
        """Three attempts. The second brought nothing; the others differ in a value and in the order of keys."""
        issue = make_issue("high", "Too dear.", path="/total")
        return make_stored_run(
            make_attempt(1, 1, "failed", output={"name": "tea", "total": 12}),
            make_attempt(1, 2, "errored"),
            make_attempt(1, 3, "failed", output={"total": 9, "name": "tea"}, issues=(issue,)),
            make_attempt(2, 1),
        )

    def test_an_output_is_compared_with_the_one_before_it_that_there_is(self, viewer: Client, run: Run) -> None:
        page = get_page(viewer, f"{run_address(run)}?diff=s1a3")
        words = read_words(page)
        assert "Since attempt 1 : ~ 1 changed {" in words and "~ Changed:" in words
        assert "<del>12</del> → <ins>9</ins>" in page
        assert 'id="s1a3-compare" name="diff" value=""' in page and 'aria-pressed="true"' in page

    def test_marks_of_issues_stay_on_its_lines(self, viewer: Client, run: Run) -> None:
        page = get_page(viewer, f"{run_address(run)}?diff=s1a3")
        assert 'data-number="2" id="s1a3-l2" data-marks="high"><a class="line-link" href="#s1a3-i0"' in page

    def test_nothing_is_compared_unless_it_is_asked_for(self, viewer: Client, run: Run) -> None:
        page = get_page(viewer, run_address(run))
        assert "<del>" not in page
        assert 'name="diff" value="s1a3" data-compares="s1a3"' in page
        assert 'data-compares="s1a1"' not in page and 'data-compares="s2a1"' not in page

    def test_an_attempt_that_is_opened_shows_what_changed_if_the_address_says_so(
        self, viewer: Client, run: Run
    ) -> None:
        part = get_page(viewer, f"{attempt_address(run, 1, 3)}?diff=s1a3", headers=HTMX)
        assert "<del>12</del> → <ins>9</ins>" in part

    def test_outputs_that_are_too_long_get_a_sentence(self, viewer: Client) -> None:
        output = {"rows": list(range(6_000))}
        run = make_stored_run(make_attempt(1, 1, "failed", output=output), make_attempt(1, 2, output=output))
        page = get_page(viewer, f"{run_address(run)}?diff=s1a2")
        assert "The outputs of attempts 1 and 2 are too long to be compared here." in page

    @pytest.mark.parametrize(
        ("named", "sentence"),
        [
            ("nonsense", "“nonsense” is no attempt that can be compared; one is named like s2a3: step 2, attempt 3."),
            ("s1a1", "Step 1, attempt 1 has no output, or none before it, to be compared."),
            ("s9a9", "Step 9, attempt 9 has no output, or none before it, to be compared."),
            (",".join(f"s1a{n}" for n in range(1, 12)), "At most 10 attempts can be compared on one page"),
        ],
    )
    def test_what_can_not_be_compared_gets_a_sentence(
        self, viewer: Client, run: Run, named: str, sentence: str
    ) -> None:
        page = get_page(viewer, f"{run_address(run)}?diff={named}")
        assert sentence in read_words(page)

    def test_a_hostile_name_is_text(self, viewer: Client, run: Run) -> None:
        page = get_page(viewer, f"{run_address(run)}?diff=<script>alert(1)</script>\u202e")
        assert "<script>alert" not in page and "\u202e" not in page

    def test_comparing_costs_no_more_queries(self, viewer: Client, run: Run) -> None:
        assert count_queries(viewer, f"{run_address(run)}?diff=s1a3") == count_queries(viewer, run_address(run))
