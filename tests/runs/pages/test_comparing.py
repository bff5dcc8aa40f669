"""Two runs of a flow beside each other, as a reader sees them."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import QuerySet
from django.test import Client
from django.utils import timezone

from flows.engine.history import Attempt
from flows.models import FlowVersion
from runs.models import Run, RunStatus
from runs.pages import compared_issues, compared_rows
from runs.pages.compared_runs import RunComparison, compare_runs
from tests.engine.builders import make_attempt, make_issue, make_step, make_usage
from tests.runs.builders import make_run
from tests.runs.pages.history_builders import BEGIN, begin_attempt, make_page_flow, make_retried_run, make_stored_run
from tests.runs.pages.reading import count_queries, get_page, read_words

pytestmark = pytest.mark.django_db

HEX: dict[str, Any] = {"code": "hex_format", "audit": "Hex colours", "path": "/colours/2"}
COLOURS = {"name": "Sea", "colours": ["#00f", "#0ff", "blue"]}


def address(left: Run | str, right: Run | str = "") -> str:
    first, second = (run.pk if isinstance(run, Run) else run for run in (left, right))
    return f"/runs/compare/?a={first}&b={second}"


def compare(left: Run, right: Run) -> RunComparison:
    runs = Run.objects.select_related("flow", "version", "started_by")
    return compare_runs(runs.get(pk=left.pk), runs.get(pk=right.pk), timezone.now())


def read(client: Client, left: Run, right: Run) -> str:
    return read_words(get_page(client, address(left, right)))


def make_failed(*attempts: Attempt) -> Run:
    return make_stored_run(*attempts, status=RunStatus.FAILED)


def judge(output: Any = COLOURS, **fields: Any) -> Attempt:
    return make_attempt(1, 1, "failed", output=output, issues=(make_issue("high", "No colour.", **HEX | fields),))


def test_a_run_and_its_rerun_are_told_apart_figure_by_figure() -> None:
    first = make_retried_run(prompt_tokens=900, completion_tokens=90, cost=Decimal("0.0400"))
    second = make_stored_run(
        make_attempt(1, 1, output={"colours": ["#ff0000", "#00ff00"]}, usage=make_usage(300)),
        make_attempt(2, 1),
        make_attempt(3, 1, output={"n": 1}),
        steps_passed=3,
        prompt_tokens=1_300,
        completion_tokens=90,
        cost=Decimal("0.0300"),
    )
    Run.objects.filter(pk=second.pk).update(ended_at=BEGIN + timedelta(minutes=5, seconds=1.4))
    found = {one.name: (one.left, one.right, one.delta) for one in compare(first, second).figures}
    told = {
        name: (left, right, delta.text.replace("\N{MINUS SIGN}", "-"), delta.tone)
        for name, (left, right, delta) in found.items()
        if delta
    }
    assert told == {
        "Steps passed": ("3 of 3", "3 of 3", "same", "quiet"),
        "Attempts": ("4", "3", "-1 fewer", "passed"),
        "Issues of all attempts": ("", "", "-1 fewer", "passed"),
        "Duration": ("5 min 00 s", "5 min 01 s", "+1.4 s slower", "failed"),
        "Tokens in": ("900", "1\u202f300", "+400 more", "failed"),
        "Tokens out": ("90", "90", "same", "quiet"),
        "Cost": ("$0.0400", "$0.0300", "-$0.0100 cheaper", "passed"),
    }
    for fields in ({"cost": None}, {"cost": Decimal("0.01"), "unpriced_count": 1}):
        Run.objects.filter(pk=second.pk).update(**fields)
        assert [one.delta for one in compare(first, second).figures if one.name == "Cost"] == [None]


def test_inputs_and_final_outputs_are_compared_by_structure(viewer: Client) -> None:
    first = make_stored_run(
        make_attempt(1, 1, "failed", output={"colours": ["red"]}),
        make_attempt(1, 2, output={"name": "Sea", "colours": ["#00f", "#0ff"]}),
        make_attempt(2, 1, output={"b": 2, "a": 1}),
        input={"topic": "the sea"},
    )
    second = make_stored_run(
        make_attempt(1, 1, output={"colours": ["#00f", "#0ff", "#fff"], "name": "Foam"}),
        make_attempt(2, 1, output={"a": 1, "b": 2}),
        input={"topic": "the sea"},
    )
    page = compare(first, second)
    assert page.input is not None and page.input.is_same
    one, two, three = (step.outputs.diff for step in page.steps)
    assert one is not None and two is not None and three is None
    assert (one.changed, one.added, one.removed, two.is_same) == (1, 1, 0, True)
    assert f"#{first.pk}, attempt 2 Passed" in read(viewer, first, second)


def test_the_final_output_is_not_that_of_an_attempt_that_was_broken_off() -> None:
    first = make_stored_run(
        make_attempt(1, 1, "failed", output={"text": "decided"}),
        make_attempt(1, 2, "interrupted"),
        make_attempt(1, 3, "cancelled"),
        status=RunStatus.CANCELLED,
    )
    step = compare(first, make_stored_run(make_attempt(1, 1, output={"text": "decided"}))).steps[0]
    assert step.left is not None and (step.left.number, step.left.state) == (1, "failed")
    assert step.outputs.diff is not None and step.outputs.diff.is_same


def test_what_only_one_run_reached_or_has_not_reached_yet_is_not_held_against_it(viewer: Client) -> None:
    first = make_failed(make_attempt(1, 1, "failed", output={"text": "x"}))
    second = make_stored_run(make_attempt(1, 1), make_attempt(2, 1, output={"text": "y"}))
    step = compare(first, second).steps[1]
    assert (step.left and step.left.state, step.right and step.right.state) == ("waiting", "passed")
    assert step.outputs.laid_out and all(figure.delta is None for figure in step.figures)
    third = make_stored_run(make_attempt(1, 1), status=RunStatus.RUNNING)
    begin_attempt(third, 2, 1)
    assert f"#{third.pk} Running" in read(viewer, second, third)
    assert "Not begun" in read(viewer, second, make_run(first.version))


def test_issues_of_the_last_attempts_are_marked_as_shared_or_not(viewer: Client) -> None:
    shared = make_issue("high", "“red” is no colour.", **HEX)
    first = make_stored_run(
        make_attempt(1, 1, "failed", issues=(make_issue("critical", "Gone by then."),)),
        make_attempt(1, 2, issues=(make_issue("low", "A bit long."), shared)),
    )
    others = (make_issue("high", "“blue” is no colour.", **HEX), make_issue("medium", "Odd.", **HEX))
    second = make_stored_run(make_attempt(1, 1, issues=others))
    step = compare(first, second).steps[0]
    assert step.left and step.right
    # Two findings of a kind against one: one of them is new.
    assert [[(one.severity, one.is_shared) for one in side.issues] for side in (step.left, step.right)] == [
        [("high", True), ("low", False)],
        [("high", True), ("medium", False)],
    ]
    words = read(viewer, first, second)
    assert "“red” is no colour. /colours/2 hex_format in both" in words
    assert "A bit long. too_short only here" in words and "Gone by then." not in words


def test_steps_of_other_versions_are_matched_by_name(viewer: Client) -> None:
    old = make_page_flow(make_step(1, name="Draft"), make_step(2, name="Check", compute="{}"), make_step(3, name="End"))
    new = make_page_flow(make_step(1, name="Plan"), make_step(2, name="Draft"), make_step(3, name="End", max_retries=9))
    first = make_stored_run(make_attempt(1, 1), make_attempt(2, 1), spec=old)
    second = make_stored_run(make_attempt(1, 1), make_attempt(2, 1, output={"text": "s1a1"}), spec=new)
    page = compare(first, second)
    names = [(step.left and step.left.name, step.right and step.right.name) for step in page.steps]
    assert names == [(None, "Plan"), ("Draft", "Draft"), ("Check", None), ("End", "End")]
    draft = page.steps[1]
    assert draft.outputs.diff is not None and draft.outputs.diff.is_same
    words = read(viewer, first, second)
    assert "Version 1 → version 2" in words
    # Who sees runs does not see definitions for that.
    assert "max_retries" not in words


def test_the_difference_of_definitions_is_shown_to_those_who_may_see_them(admin_client: Client) -> None:
    first = make_stored_run(make_attempt(1, 1, output={"text": "x"}))
    spec = make_page_flow(make_step(1, max_retries=9), make_step(2))
    second = make_stored_run(make_attempt(1, 1, output={"text": "y"}), spec=spec)
    page = get_page(admin_client, address(first, second))
    assert "max_retries" in read_words(page)
    assert f'href="/admin/flows/flow/{first.flow_id}/versions/compare/?from=1&amp;to=2"' in page
    # Versions never change; an older release wrote this one.
    QuerySet(FlowVersion).filter(pk=second.version_id).update(spec={"steps": 7})
    words = read(admin_client, first, second)
    assert "can’t be read by this version of ToolFlow" in words and "~ 1 changed" in words


def test_outputs_too_long_or_beyond_the_room_of_a_page_are_left_to_their_own(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [
        make_stored_run(
            make_attempt(1, 1, output={"n": [number, *range(4_900)]}),
            make_attempt(2, 1, output={"n": [number, *range(5_100)]}),
        )
        for number in (1, 2)
    ]
    fits, longer = (step.outputs.diff for step in compare(*runs).steps[:2])
    assert fits is not None and fits.changed == 1 and longer is None
    monkeypatch.setattr(compared_rows, "ROOM", 150)
    runs = [
        make_stored_run(
            make_attempt(1, 1, output={"text": "x" * 30}),
            make_attempt(2, 1, output={"text": f"secret {number}" + "y" * 90}),
            make_attempt(3, 1, "invalid", output=None, raw_output="secret" * 40),
        )
        for number in (1, 2)
    ]
    words = read(viewer, *runs)
    assert "Too much to be shown here" in words and "secret" not in words


def test_what_came_back_instead_of_outputs_can_be_read(viewer: Client) -> None:
    issue = make_issue("critical", "That is no call of the tool.", path="/wrong")
    bad = make_failed(make_attempt(1, 1, "invalid", output=None, raw_output={"wrong": 1}, issues=(issue,)))
    good = make_failed(make_attempt(1, 1, output={"text": "fine"}))
    bare = make_failed(make_attempt(1, 1, "errored", output=None))
    for other in (good, bare):
        page = get_page(viewer, address(other, bad))
        assert f"What came back in #{bad.pk} (not usable as an output)" in read_words(page) or other is bare
        assert 'href="#b1-l2">/wrong, line 2</a>' in page
        assert '<span class="line" id="b1-l2" data-marks="critical">' in page
    assert f'Output of #{good.pk} {{ "text" : "fine" }}' in read(viewer, good, bad)


class TestLinksOfIssues:
    def test_an_issue_its_line_and_its_run_lead_to_each_other(self, viewer: Client) -> None:
        left = make_failed(make_attempt(1, 1, "failed"), judge().model_copy(update={"number": 2}))
        right = make_failed(judge({"name": "Sea", "colours": ["#00f", "#0ff", "green"]}))
        page = get_page(viewer, address(left, right))
        assert re.search(
            r'<span class="line diff-changed"[^>]*id="b1-l6" data-marks="high"><a [^>]*href="#b1-i0"', page
        )
        assert 'href="#b1-l6">/colours/2, line 6</a>' in page
        for run, number in ((left, 2), (right, 1)):
            target = f"/runs/{run.pk}/steps/1/attempts/{number}/"
            assert f'href="{target}#i0"' in page and 'id="i0"' in get_page(viewer, target)

    def test_the_gravest_are_listed_and_only_they_have_marks(
        self, viewer: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(compared_issues, "MAX_LISTED_ISSUES", 1)
        issues = (make_issue("low", path="/colours/0"), make_issue("critical", path="/colours/1"))
        other = make_failed(make_attempt(1, 1, "failed", output=COLOURS, issues=issues))
        page = get_page(viewer, address(make_failed(judge()), other))
        assert 'id="b1-l5" data-marks="critical"' in page and "b1-l4" not in page
        assert "The attempt has 2 issues; the most severe 1 are shown." in read_words(page)


def test_what_a_model_wrote_is_inert(viewer: Client) -> None:
    hostile = "<script>alert(1)</script>\u202e\x1b[31m javascript:alert(1) {{ 7 }}"
    issues = (make_issue(description=hostile, code=hostile, path=f"/{hostile}", suggestions=(hostile,)),)
    runs = [
        make_stored_run(
            make_attempt(1, 1, "failed", output={hostile: [f"{hostile}{number}"]}, issues=issues),
            input={hostile: number},
            status=RunStatus.FAILED,
            end_sentence=hostile,
        )
        for number in (1, 2)
    ]
    page = get_page(viewer, address(*runs))
    assert "<script>alert" not in page and "\u202e" not in page and "\x1b" not in page


def test_one_number_offers_the_latest_other_runs_of_the_flow(viewer: Client) -> None:
    runs = [make_stored_run(make_attempt(1, 1)) for _ in range(3)]
    other = make_stored_run(make_attempt(1, 1), spec=make_page_flow(name="other", title="Other"))
    for chosen in (address(runs[1]), f"/runs/compare/?b=%23{runs[1].pk}"):
        page = get_page(viewer, chosen)
        assert re.findall(rf"\?a={runs[1].pk}&amp;b=(\d+)", page) == [str(run.pk) for run in (runs[2], runs[0])]
    assert "is the only run of this flow" in read_words(get_page(viewer, address(other)))


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        ("{a}", "{a}", 400),
        ("{a}", "{c}", 400),
        ("{a}", "99999", 404),
        ("99999", "", 404),
        ("9" * 30, "{a}", 400),
        ("٣", "{a}", 400),
        ("<b>", "-1", 400),
    ],
)
def test_what_cannot_be_compared_is_said_in_a_sentence(viewer: Client, first: str, second: str, status: int) -> None:
    other = make_stored_run(make_attempt(1, 1), spec=make_page_flow(name="other", title="Other"))
    names = {"a": make_stored_run(make_attempt(1, 1)).pk, "c": other.pk}
    answer = viewer.get(address(first.format(**names), second.format(**names)))
    assert answer.status_code == status and "<b>”" not in answer.content.decode()
    assert (f'href="/runs/{other.pk}/"' in answer.content.decode()) == (second == "{c}")


def test_comparing_costs_the_same_queries_however_long_the_runs_are(viewer: Client) -> None:
    def make(attempts: int) -> Run:
        numbers = range(1, attempts + 1)
        rows = [
            make_attempt(step, number, "failed" if number < attempts else "passed", issues=(make_issue(),))
            for step in numbers
            for number in numbers
        ]
        steps = [make_step(index, max_retries=9) for index in numbers]
        return make_stored_run(*rows, spec=make_page_flow(*steps, name=f"flow-{attempts}"))

    short = count_queries(viewer, address(make(1), make(1)))
    assert short == count_queries(viewer, address(make(6), make(6))) == 9
