"""The page of one run: what its head says, what its outline leads to, and what each address selects."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client

from runs.models import Attempt, Run, RunStatus
from tests.engine.builders import make_attempt, make_error, make_issue, make_step
from tests.runs.pages.history_builders import begin_attempt, make_page_flow, make_retried_run, make_stored_run
from tests.runs.pages.reading import (
    HTMX,
    attempt_address,
    count_queries,
    find_selected,
    get_page,
    read_outline,
    read_words,
    run_address,
)

pytestmark = pytest.mark.django_db

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)"> {{ x }} {% x %} \u202eevil \x1b[31m </details>'
PANE = {**HTMX, "HX-Target": "pane"}


def make_failed_run() -> Run:
    issue = make_issue("high", "Too short.", audit="Length", path="/text")
    return make_stored_run(
        make_attempt(1, 1),
        make_attempt(2, 1, "failed", output={"text": "a"}, issues=(issue,)),
        make_attempt(2, 2, "failed", output={"text": "b"}, issues=(issue,)),
        status=RunStatus.FAILED,
        end_sentence="Step 2 “Say “tea” twice” did not pass in 2 attempts: it said “no”.",
        blocking_step=2,
        blocking_attempt=2,
    )


class TestHead:
    def test_a_failed_run_says_at_once_what_was_wrong_and_what_blocked_it(self, viewer: Client) -> None:
        run = make_failed_run()
        page = get_page(viewer, run_address(run))
        words = read_words(page)
        assert f"Colour theme #{run.pk} Failed" in words and "chip tone-failed" in page
        assert "Issues left 1 high" in words
        verdict = page.partition('<p class="verdict">')[2].partition("</p>")[0]
        assert f'<a href="{attempt_address(run, 2, 2)}">' in verdict
        assert run.end_sentence in read_words(verdict)
        pane = page.partition('id="pane"')[2]
        assert "Too short." in pane and '<code class="issue-value"><bdi dir="ltr">b</bdi></code>' in pane
        assert 'id="i0-at" href="#i0"' in pane
        words = read_words(get_page(viewer, run_address(make_retried_run(retry_count=1))))
        assert "Steps 3 of 3 passed Attempts 4 1 retry" in words and "Issues left None 1 fixed" in words

    def test_an_accepted_output_is_no_pass_and_keeps_its_issues(self, viewer: Client) -> None:
        low, high = make_issue("low", audit="Tone"), make_issue("high", audit="Length")
        tries = (make_attempt(1, 1, "failed", issues=(low,)), make_attempt(1, 2, "failed", issues=(high,)))
        sentence = "Attempt 1 is the best of 2, and accepted."
        run = make_stored_run(*tries, make_attempt(3, 1), accepted_count=1, end_sentence=sentence)
        Attempt.objects.filter(step__run=run, number=1, step__index=1).update(is_accepted=True)
        words = read_words(get_page(viewer, run_address(run)))
        assert sentence in words and "All 3 steps passed" not in words
        assert "fixed" not in words.partition("Issues left ")[2][:10]

    def test_the_sentence_of_a_succeeded_run_names_retries_and_what_is_left(self, viewer: Client) -> None:
        low, high = make_issue("low"), make_issue("high")
        retried = (make_attempt(1, 1, "failed"), make_attempt(1, 2))
        lost = (make_attempt(2, 1, "interrupted"), make_attempt(2, 2))
        cases = (
            ((make_attempt(1, 1), make_attempt(3, 1)), "All 3 steps passed."),
            ((*retried, make_attempt(3, 1)), "All 3 steps passed, with 1 retry: Step 1 needed 2 attempts."),
            # What was interrupted is no retry.
            ((*lost, make_attempt(3, 1, issues=(low,))), "All 3 steps passed. 1 issue is left in the result."),
            ((make_attempt(3, 1, issues=(low, high)),), "All 3 steps passed. 2 issues are left in the result."),
            ((make_attempt(1, 1, issues=(low,)), make_attempt(3, 1)), "1 issue is left in earlier steps."),
            (
                (make_attempt(1, 1, issues=(low, low)), make_attempt(3, 1, issues=(low,))),
                "3 issues are left, 1 of them in the result.",
            ),
        )
        for attempts, sentence in cases:
            page = get_page(viewer, run_address(make_stored_run(*attempts)))
            words = read_words(page.partition('<p class="verdict">')[2].partition("</p>")[0])
            assert words.replace(" .", ".").endswith(sentence), words

    def test_audits_lead_to_their_issues_whether_they_found_any_or_not(self, viewer: Client) -> None:
        audits = [{"name": name, "rule": "true"} for name in ("Length & form", "Tone")]
        issue = make_issue("high", "Too short.", audit="Length & form", path="/text")
        spec = make_page_flow(make_step(1, audits=audits))
        run = make_stored_run(make_attempt(1, 1, "failed", issues=(issue,)), spec=spec, status=RunStatus.FAILED)
        page = get_page(viewer, attempt_address(run, 1, 1))
        links = [unescape(link) for link in re.findall(r'href="(/issues/[^"]+audit=[^"]+)"', page)]
        address = f"/issues/?flow={run.flow.name}&audit="
        assert links == [f"{address}Length%20%26%20form"] * 2 + [f"{address}Tone"]
        assert all(viewer.get(link).status_code == 200 for link in links)


class TestSelection:
    def test_a_run_opens_with_its_result_the_blocking_attempt_or_where_it_is(self, viewer: Client) -> None:
        running = make_stored_run(make_attempt(1, 1), status=RunStatus.RUNNING)
        begin_attempt(running, 2, 1)
        cases = (
            (make_retried_run(), "result"),
            (make_failed_run(), "s2a2"),
            (make_stored_run(make_attempt(1, 1), make_attempt(2, 1), status=RunStatus.CANCELLED), "s2a1"),
            (running, "s2a1"),
            (make_stored_run(status=RunStatus.QUEUED), "s0a1"),
        )
        for run, entry in cases:
            page = get_page(viewer, run_address(run))
            assert find_selected(page) == entry and f'id="pane" data-entry="{entry}"' in page

    def test_each_entry_of_the_outline_has_an_address_of_its_own(self, viewer: Client) -> None:
        run = make_retried_run()
        entries = read_outline(get_page(viewer, run_address(run)))
        assert [(href.removeprefix(run_address(run)), words) for href, words in entries] == [
            ("?show=result", "Result"),
            ("steps/0/attempts/1/", "Input"),
            ("steps/1/attempts/1/", "Attempt 1 : Failed 1 critical 1.0 s"),
            ("steps/1/attempts/2/", "Attempt 2 : Passed 1.0 s"),
            ("steps/2/attempts/1/", "2 Step 2 : Passed 1.0 s"),
            ("steps/3/attempts/1/", "3 Step 3 : Passed 1.0 s"),
        ]
        for (href, _), id in zip(entries, ("result", "s0a1", "s1a1", "s1a2", "s2a1", "s3a1"), strict=True):
            assert find_selected(get_page(viewer, href)) == id
            pane = get_page(viewer, href, headers=PANE)
            assert f'id="pane" data-entry="{id}"' in pane and "<html" not in pane and 'id="live" hidden' in pane

    @pytest.mark.parametrize("end", ["steps/1/attempts/9/", "steps/9/attempts/1/", "steps/0/attempts/2/"])
    def test_there_is_none_that_was_not_made(self, viewer: Client, end: str) -> None:
        assert viewer.get(f"{run_address(make_retried_run())}{end}").status_code == 404


class TestSteps:
    @pytest.mark.parametrize(
        ("outcomes", "status", "state"),
        [
            (["failed"], RunStatus.RUNNING, "Waiting to retry"),
            (["failed"], RunStatus.CANCELLED, "Cancelled"),
            (["interrupted"], RunStatus.ERRORED, "Interrupted"),
            (["failed", "interrupted"], RunStatus.ERRORED, "Failed"),
            (["invalid"] * 4, RunStatus.FAILED, "Failed"),
            (["errored"] * 4, RunStatus.ERRORED, "Errored"),
            (["failed", "passed"], RunStatus.RUNNING, "Passed"),
        ],
    )
    def test_the_state_of_a_step_is_that_of_the_attempt_that_decides(
        self, viewer: Client, outcomes: list[str], status: str, state: str
    ) -> None:
        attempts = [make_attempt(1, number, outcome) for number, outcome in enumerate(outcomes, start=1)]
        words = read_words(get_page(viewer, run_address(make_stored_run(*attempts, status=status))))
        assert f"1 Step 1 : {state} " in words

    def test_a_step_says_what_it_waited_for(self, viewer: Client) -> None:
        limited = make_error(message="Slow down.", code="rate_limited", status=429, retry_after=1)
        run = make_stored_run(
            make_attempt(1, 1, "errored", error=limited), make_attempt(1, 2, "interrupted"), make_attempt(1, 3)
        )
        waits = [read_words(get_page(viewer, attempt_address(run, 1, number), headers=PANE)) for number in (1, 2, 3)]
        assert "Waited" not in waits[0]
        assert "Waited 1.0 s for the provider’s rate limit (the provider asked for 1.0 s)" in waits[1]
        assert "Waited 1.0 s for a worker after the interruption" in waits[2]


class TestSameOutput:
    @pytest.fixture
    def run(self) -> Run:
        issue = make_issue("high", "Too short.", path="/text")
        outputs = ({"n": 1, "text": "tea"}, {"n": 1, "text": "tea"}, {"n": 1, "text": "tea"}, {"n": 1, "text": "sea"})
        return make_stored_run(
            *(make_attempt(1, n, "failed", output=output, issues=(issue,)) for n, output in enumerate(outputs, 1)),
            status=RunStatus.FAILED,
        )

    def test_a_retry_that_gives_the_same_output_says_so_and_does_not_repeat_it(self, viewer: Client, run: Run) -> None:
        page = get_page(viewer, attempt_address(run, 1, 3))
        words = [words for _, words in read_outline(page)]
        assert ["same as 1" in entry for entry in words] == [False, False, True, True, False]
        assert 'aria-label="Attempt 3: Failed, 1 high, same output as attempt 1"' in page
        assert 'id="s1a3-view"' not in page and "Too short." in page
        shown_again = f"{attempt_address(run, 1, 3)}?output=1"
        assert f'href="{shown_again}#i0-at"' in page
        page = get_page(viewer, shown_again)
        assert 'id="s1a3-view"' in page and f'href="{shown_again}&amp;view=json"' in page


class TestSize:
    def test_the_number_of_queries_does_not_grow_with_attempts_and_issues(self, viewer: Client) -> None:
        small = make_retried_run()
        issues = tuple(make_issue(severity) for severity in ("low", "medium", "high"))
        large = make_stored_run(*[make_attempt(1, number, "failed", issues=issues) for number in range(1, 30)])
        assert count_queries(viewer, run_address(small)) == count_queries(viewer, run_address(large)) == 8

    def test_twenty_steps_with_four_attempts_each_are_sent_in_105_kb(self, viewer: Client) -> None:
        steps = range(1, 21)
        output = {"rows": [{"id": n, "text": "a line of an output"} for n in range(10)]}
        issues = (make_issue("high", path="/rows/9/text"), make_issue("low"), make_issue("low"))
        run = make_stored_run(
            *(
                make_attempt(s, n, "failed", output={**output, "n": n}, issues=issues)
                for s in steps
                for n in range(1, 5)
            ),
            spec=make_page_flow(*(make_step(step) for step in steps)),
            status=RunStatus.FAILED,
        )
        assert len(get_page(viewer, run_address(run)).encode()) <= 105_000

    def test_long_outputs_don_t_make_the_page_of_all_attempts_longer_than_it_may_be(
        self, viewer: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("runs.pages.run_page.MAX_SHOWN_BYTES", 50_000)
        run = make_stored_run(*(make_attempt(1, n, output={"text": str(n) * 30_000}) for n in (1, 2)))
        page = get_page(viewer, f"{run_address(run)}attempts/")
        assert "1" * 30_000 in page and "2" * 30_000 not in page
        assert f'<a href="{attempt_address(run, 1, 2)}">Open the attempt</a>' in page


def test_all_attempts_stand_on_one_page_for_printing_and_searching(viewer: Client) -> None:
    run = make_retried_run()
    address = f"{run_address(run)}attempts/"
    assert f'href="{address}"' in get_page(viewer, run_address(run))
    page = get_page(viewer, address)
    assert re.findall(r'<div id="(s\da\d)">', page) == ["s1a1", "s1a2", "s2a1", "s3a1"]
    words = read_words(page)
    assert (
        '"topic" : "tea"' in words and '"red"' in words and '"#00ff00"' in words and "“red” is no hex colour." in words
    )
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


class UnguardedFinder(HTMLParser):
    """Finds ``MODEL`` in a page, and of these places the ones that no ``hx-disable`` is around."""

    VOID = ("meta", "link", "input", "img", "br", "hr")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.guards: list[bool] = []
        self.count = 0
        self.unguarded: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.guards.append("hx-disable" in dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            self.guards.pop()

    def handle_data(self, data: str) -> None:
        if "MODEL" in data:
            self.count += 1
            if not any(self.guards):
                self.unguarded.append(data)


class TestHostileOutput:
    def test_nothing_that_a_model_wrote_is_more_than_text(self, viewer: Client) -> None:
        texts: dict[str, Any] = {"code": HOSTILE, "audit": HOSTILE[:90], "suggestions": (HOSTILE,)}
        issue = make_issue("critical", HOSTILE, path=f"/{HOSTILE}", context={HOSTILE: HOSTILE}, **texts)
        request = {"messages": [{"role": HOSTILE, "content": HOSTILE}], "tools": [HOSTILE]}
        run = make_stored_run(
            make_attempt(
                1, 1, "failed", output={HOSTILE: [{HOSTILE: HOSTILE}]}, issues=(issue,), failure_reason=HOSTILE
            ),
            make_attempt(1, 2, "invalid", raw_output=HOSTILE, request=request, model=HOSTILE),
            make_attempt(1, 3, "errored", error=make_error(message=HOSTILE)),
            status=RunStatus.FAILED,
            end_sentence=HOSTILE,
        )
        parts = tuple(attempt_address(run, 1, number) for number in (1, 2, 3))
        second = attempt_address(run, 1, 2)
        for address in (
            run_address(run),
            f"{run_address(run)}attempts/",
            *parts,
            *(f"{parts[0]}?view={view}" for view in ("text", "table", "json")),
            f"{second}request/",
            f"{second}input/",
        ):
            page = get_page(viewer, address)
            for text in ("<script>alert", "<img", "\u202e", "\x1b"):
                assert text not in page

    def test_htmx_looks_at_nothing_that_a_model_wrote(self, viewer: Client) -> None:
        texts: dict[str, Any] = {"issues": (make_issue("low", "MODEL"),), "failure_reason": "MODEL"}
        run = make_stored_run(make_attempt(1, 1, "failed", output={"text": "MODEL"}, **texts), input={"x": "MODEL"})
        finder = UnguardedFinder(get_page(viewer, f"{run_address(run)}attempts/"))
        assert (finder.count, finder.unguarded) == (4, [])
        finder = UnguardedFinder(get_page(viewer, attempt_address(run, 1, 1)))
        assert (finder.count, finder.unguarded) == (4, [])

    def test_texts_of_models_and_users_are_isolated_in_their_own_direction(self, viewer: Client) -> None:
        issue = make_issue("low", "«غير المحدودة» هو سبب قصير", path="/text")
        spec = make_page_flow(make_step(1, name="Ταξινόμηση"))
        run = make_stored_run(make_attempt(1, 1, issues=(issue,), output={"text": "دفع"}), spec=spec)
        page = get_page(viewer, attempt_address(run, 1, 1))
        assert '<bdi dir="rtl">«غير' in page and '<code class="issue-value"><bdi dir="rtl">دفع' in page
        assert "<b><bdi>Ταξινόμηση</bdi></b>" in page


def test_what_the_address_hides_is_hidden_and_its_toggles_say_so(viewer: Client) -> None:
    run = make_stored_run(make_attempt(1, 1, "failed", issues=(make_issue("low"), make_issue("high"))))
    page = get_page(viewer, f"{run_address(run)}?hide=low,clean")
    assert 'id="run"' in page and 'data-hide="low clean"' in page
    toggles = dict(re.findall(r'data-hides="(\w+)" aria-pressed="(\w+)"', page))
    assert toggles == {"critical": "true", "high": "true", "medium": "true", "low": "false", "clean": "true"}
    assert 'name="hide" value="clean" data-hides="low"' in page
    assert "Critical 0 High 1 Medium 0 Low 1" in read_words(page)
    page = get_page(viewer, f"{run_address(run)}?hide=low,nonsense")
    assert "message-warning" in page and 'data-hide=""' in page
