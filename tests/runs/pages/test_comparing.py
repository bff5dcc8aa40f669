"""Two runs of a flow beside each other, as a reader sees them."""

from __future__ import annotations

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
from runs.pages import compared_rows
from runs.pages.compared_runs import RunComparison, compare_runs
from tests.engine.builders import make_attempt, make_issue, make_step, make_usage
from tests.runs.builders import make_run
from tests.runs.pages.history_builders import (
    BEGIN,
    begin_attempt,
    make_page_flow,
    make_retried_run,
    make_stored_run,
)
from tests.runs.pages.reading import count_queries, get_page, read_words, sign_in

pytestmark = pytest.mark.django_db

MINUS = "\N{MINUS SIGN}"
HEX = {"code": "hex_format", "audit": "Hex colours", "path": "/colours/1"}


def address(left: Run | str, right: Run | str = "") -> str:
    first, second = (run.pk if isinstance(run, Run) else run for run in (left, right))
    return f"/runs/compare/?a={first}&b={second}"


def compare(left: Run, right: Run) -> RunComparison:
    runs = Run.objects.select_related("flow", "version", "started_by")
    return compare_runs(runs.get(pk=left.pk), runs.get(pk=right.pk), timezone.now())


def read(client: Client, left: Run, right: Run) -> str:
    return read_words(get_page(client, address(left, right)))


def tell_figures(figures: Any) -> dict[str, str]:
    return {
        figure.name: f"{figure.left} | {figure.right} | {figure.delta.text if figure.delta else '—'}".replace(
            MINUS, "-"
        )
        for figure in figures
    }


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
    figures = compare(first, second).figures
    assert tell_figures(figures) == {
        "Steps passed": "3 of 3 | 3 of 3 | same",
        "Attempts": "4 | 3 | -1 fewer",
        "Issues of all attempts": " |  | -1 fewer",
        "Duration": "5 min 00 s | 5 min 01 s | +1.4 s slower",
        "Tokens in": "900 | 1\u202f300 | +400 more",
        "Tokens out": "90 | 90 | same",
        "Cost": "$0.0400 | $0.0300 | -$0.0100 cheaper",
    }
    assert [figure.delta.tone for figure in figures if figure.delta] == [
        *("quiet", "passed", "passed", "failed", "failed", "quiet", "passed")
    ]


def test_a_cost_that_is_not_known_has_no_difference() -> None:
    first = make_stored_run(make_attempt(1, 1), cost=Decimal("0.04"))
    for fields, shown in (({"cost": None}, "—"), ({"cost": Decimal("0.01"), "unpriced_count": 1}, "≥ $0.0100")):
        second = make_stored_run(make_attempt(1, 1), **fields)
        assert tell_figures(compare(first, second).figures)["Cost"] == f"$0.0400 | {shown} | —"


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
    one, two, three = page.steps
    assert one.outputs.diff is not None and two.outputs.diff is not None
    assert (one.outputs.diff.changed, one.outputs.diff.added, one.outputs.diff.removed) == (1, 1, 0)
    assert two.outputs.diff.is_same
    assert three.outputs.sentence == "There is no output of this step to compare."
    words = read(viewer, first, second)
    assert "The same input" in words and "~ 1 changed + 1 added" in words and "The same output" in words
    assert f"#{first.pk}, attempt 2 Passed" in words


def test_the_final_output_is_not_that_of_an_attempt_that_was_broken_off() -> None:
    first = make_stored_run(
        make_attempt(1, 1, "failed", output={"text": "decided"}),
        make_attempt(1, 2, "interrupted"),
        make_attempt(1, 3, "cancelled"),
        status=RunStatus.CANCELLED,
    )
    second = make_stored_run(make_attempt(1, 1, output={"text": "decided"}))
    step = compare(first, second).steps[0]
    assert step.left is not None and (step.left.number, step.left.state) == (1, "failed")
    assert step.outputs.diff is not None and step.outputs.diff.is_same


def test_a_step_that_only_one_run_reached_is_neither_better_nor_worse() -> None:
    first = make_stored_run(make_attempt(1, 1, "failed", output={"text": "x"}), status=RunStatus.FAILED)
    second = make_stored_run(make_attempt(1, 1), make_attempt(2, 1, output={"text": "y"}))
    step = compare(first, second).steps[1]
    assert (step.left and step.left.state, step.right and step.right.state) == ("waiting", "passed")
    assert step.outputs.sentence == f"Only #{second.pk} has an output of this step." and step.outputs.laid_out
    assert all(figure.delta is None for figure in step.figures)


def test_issues_of_the_last_attempts_are_marked_as_shared_or_not(viewer: Client) -> None:
    shared = make_issue("high", "“red” is no colour.", **HEX)
    first = make_stored_run(
        make_attempt(1, 1, "failed", issues=(make_issue("critical", "Gone by then."),)),
        make_attempt(1, 2, issues=(make_issue("low", "A bit long."), shared)),
    )
    second = make_stored_run(
        make_attempt(
            1, 1, issues=(make_issue("high", "“blue” is no colour.", **HEX), make_issue("medium", "Odd.", **HEX))
        )
    )
    step = compare(first, second).steps[0]
    assert step.left and step.right
    assert [(issue.description.text, issue.is_shared) for issue in step.left.issues] == [
        ("“red” is no colour.", True),
        ("A bit long.", False),
    ]
    # Two findings of a kind against one: one of them is new.
    assert [(issue.severity, issue.is_shared) for issue in step.right.issues] == [("high", True), ("medium", False)]
    words = read(viewer, first, second)
    assert "“red” is no colour. /colours/1 hex_format in both" in words
    assert "A bit long. too_short only here" in words
    assert "Gone by then." not in words


def test_steps_of_other_versions_are_matched_by_name(viewer: Client) -> None:
    old = make_page_flow(
        make_step(1, name="Draft"), make_step(2, name="Check", compute="{'n': 1}"), make_step(3, name="Polish")
    )
    new = make_page_flow(
        make_step(1, name="Plan"), make_step(2, name="Draft"), make_step(3, name="Polish", max_retries=9)
    )
    first = make_stored_run(make_attempt(1, 1), make_attempt(2, 1), spec=old)
    second = make_stored_run(make_attempt(1, 1), make_attempt(2, 1, output={"text": "s1a1"}), spec=new)
    page = compare(first, second)
    assert [(step.left and step.left.name, step.right and step.right.name) for step in page.steps] == [
        (None, "Plan"),
        ("Draft", "Draft"),
        ("Check", None),
        ("Polish", "Polish"),
    ]
    draft = page.steps[1]
    assert draft.outputs.diff is not None and draft.outputs.diff.is_same
    words = read(viewer, first, second)
    assert "Plan Added: only in version 2" in words
    assert "Check Removed: only in version 1" in words
    assert "Draft was step 1" in words
    assert "Version 1 → version 2" in words
    # Who sees runs does not see definitions for that.
    assert "your account lacks “flows.view_flow”" in words and "max_retries" not in words


def test_the_difference_of_definitions_is_shown_to_those_who_may_see_them(admin_client: Client) -> None:
    first = make_stored_run(make_attempt(1, 1))
    second = make_stored_run(make_attempt(1, 1), spec=make_page_flow(make_step(1, max_retries=9), make_step(2)))
    page = get_page(admin_client, address(first, second))
    assert "max_retries" in read_words(page)
    assert f'href="/admin/flows/flow/{first.flow_id}/versions/compare/?from=1&amp;to=2"' in page
    rerun = make_run(first.version)
    assert "→ version" not in read(admin_client, first, rerun)


def test_a_definition_that_this_release_cannot_read_is_no_obstacle(admin_client: Client) -> None:
    first = make_stored_run(make_attempt(1, 1, output={"text": "x"}))
    second = make_stored_run(make_attempt(1, 1, output={"text": "y"}), spec=make_page_flow(make_step(1), make_step(2)))
    # Versions never change; an older release wrote this one.
    QuerySet(FlowVersion).filter(pk=second.version_id).update(spec={"steps": 7})
    words = read(admin_client, first, second)
    assert "The definition of version 2 can’t be read by this version of ToolFlow." in words
    assert "Step 1" in words and "~ 1 changed" in words


def test_a_run_that_is_under_way_is_compared_as_far_as_it_came(viewer: Client) -> None:
    first = make_stored_run(make_attempt(1, 1), make_attempt(2, 1))
    second = make_stored_run(make_attempt(1, 1), status=RunStatus.RUNNING)
    begin_attempt(second, 2, 1)
    words = read(viewer, first, second)
    assert "It has not ended yet." in words
    assert f"#{second.pk} Running" in words
    assert "Not begun" in read(viewer, first, make_run(first.version))


def test_outputs_beyond_the_room_of_a_page_are_left_to_their_own(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compared_rows, "ROOM", 150)
    runs = [
        make_stored_run(
            make_attempt(1, 1, output={"text": "x" * 30}),
            make_attempt(2, 1, output={"text": f"secret {number}" + "y" * 90}),
            make_attempt(3, 1, output={"n": number}),
        )
        for number in (1, 2)
    ]
    words = read(viewer, *runs)
    assert "Too much to be shown here beside the steps above" in words and "secret" not in words
    first, _, third = (step.outputs.diff for step in compare(*runs).steps)
    assert first is not None and first.is_same
    assert third is not None and third.changed == 1


def test_outputs_and_inputs_are_compared_up_to_the_length_that_the_page_of_a_run_takes() -> None:
    runs = []
    for number in (1, 2):
        whole, longer = ({"text": [number, *range(length)]} for length in (4_900, 5_100))
        runs.append(make_stored_run(make_attempt(1, 1, output=whole), make_attempt(2, 1, output=longer), input=whole))
    page = compare(*runs)
    fits, longer_one, _ = (step.outputs for step in page.steps)
    for diff in (page.input, fits.diff):
        assert diff is not None and (diff.changed, diff.added, diff.removed) == (1, 0, 0)
    assert longer_one.diff is None
    assert longer_one.sentence == "These outputs are too long to be compared here; open the attempts instead."


def test_what_came_back_instead_of_outputs_can_be_read(viewer: Client) -> None:
    def make(*attempts: Attempt) -> Run:
        return make_stored_run(*attempts, status=RunStatus.FAILED)

    unread = [
        make(make_attempt(1, 1, "invalid", output=None, raw_output=f'{{"colours": [{word}')) for word in ("a", "b")
    ]
    words = read(viewer, *unread)
    assert "Neither run has a usable output of this step." in words
    for run, word in zip(unread, ("a", "b"), strict=True):
        assert f'What came back in #{run.pk} (not usable as an output) {{"colours": [{word}' in words

    good = make(make_attempt(1, 1, output={"text": "fine"}), make_attempt(2, 1, "failed", output={"text": "x"}))
    words = read(viewer, good, unread[0])
    assert f'Only #{good.pk} has a usable output of this step. Output of #{good.pk} {{ "text" : "fine" }}' in words
    assert f"What came back in #{unread[0].pk} (not usable as an output)" in words
    assert f'Only #{good.pk} has an output of this step. {{ "text" : "x" }}' in words

    issue = make_issue("critical", "That is no call of the tool.", path="/wrong")
    other = make(make_attempt(1, 1, "invalid", output=None, raw_output={"wrong": 1}, issues=(issue,)))
    bare = make(make_attempt(1, 1, "errored", output=None))
    page = get_page(viewer, address(bare, other))
    assert f"Only in #{other.pk} anything came back in this step, and it is not usable" in read_words(page)
    assert 'href="#b1-l2">/wrong, line 2</a>' in page
    assert '<span class="line" id="b1-l2" data-marks="critical">' in page


def test_what_came_back_takes_room_too(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compared_rows, "ROOM", 150)
    runs = [make_stored_run(make_attempt(1, 1, "invalid", output=None, raw_output="secret" * 20)) for _ in range(2)]
    words = read(viewer, *runs)
    assert "Too much to be shown here" in words and "secret" not in words


def test_what_a_model_wrote_is_inert(viewer: Client) -> None:
    hostile = "<script>alert(1)</script>\u202e\x1b[31m javascript:alert(1) {{ 7 }}"
    runs = [
        make_stored_run(
            make_attempt(1, 1, "failed", output={hostile: [f"{hostile}{number}"]},
                         issues=(make_issue(description=hostile, code=hostile, path=f"/{hostile}"),)),
            input={hostile: number},
            status=RunStatus.FAILED,
            end_sentence=hostile,
        )
        for number in (1, 2)
    ]  # fmt: skip
    page = get_page(viewer, address(*runs))
    assert "<script>alert" not in page and "\u202e" not in page and "\x1b" not in page
    assert "\\u202e" in page


def test_one_number_offers_the_latest_other_runs_of_the_flow(viewer: Client) -> None:
    runs = [make_stored_run(make_attempt(1, 1)) for _ in range(3)]
    other = make_stored_run(make_attempt(1, 1), spec=make_page_flow(name="other", title="Other"))
    for chosen in (address(runs[1]), f"/runs/compare/?b=%23{runs[1].pk}"):
        page = get_page(viewer, chosen)
        for run in (runs[0], runs[2]):
            assert f'href="/runs/compare/?a={runs[1].pk}&amp;b={run.pk}">#{run.pk}</a>' in page
        assert f"b={other.pk}" not in page
    assert "is the only run of this flow" in read_words(get_page(viewer, address(other)))
    assert "Both must be runs of the same flow." in read_words(get_page(viewer, "/runs/compare/"))


@pytest.mark.parametrize(
    ("first", "second", "status", "sentence"),
    [
        ("{a}", "{a}", 400, "Both numbers are #{a}; a run is compared with another one."),
        ("{a}", "{c}", 400, "#{a} is a run of Colour theme, #{c} one of Other: only runs of the same flow"),
        ("{a}", "99999", 404, "There is no run #99999."),
        ("99999", "", 404, "There is no run #99999."),
        ("{a}", "tea", 400, "“tea” is not a run number."),
        ("9" * 30, "{a}", 400, f"“{'9' * 30}” is not a run number."),
        ("٣", "{a}", 400, "“٣” is not a run number."),
        ("<b>", "-1", 400, "“<b>” is not a run number."),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_said_in_a_sentence(
    viewer: Client, first: str, second: str, status: int, sentence: str
) -> None:
    names = {
        "a": make_stored_run(make_attempt(1, 1)).pk,
        "c": make_stored_run(make_attempt(1, 1), spec=make_page_flow(name="other", title="Other")).pk,
    }
    answer = viewer.get(address(first.format(**names), second.format(**names)))
    assert answer.status_code == status
    assert sentence.format(**names) in read_words(answer.content.decode())
    if status == 400 and "{c}" in second:
        assert f'href="/runs/{names["c"]}/"' in answer.content.decode()


def test_only_those_who_see_runs_compare_them(client: Client) -> None:
    assert client.get(address("1", "2")).status_code == 302
    sign_in(client, "view_issue")
    assert client.get(address("1", "2")).status_code == 403


def test_comparing_costs_the_same_queries_however_long_the_runs_are(viewer: Client) -> None:
    def make(attempts: int) -> Run:
        steps = [make_step(index, max_retries=9) for index in range(1, attempts + 1)]
        rows = [
            make_attempt(step, number, "failed" if number < attempts else "passed", issues=(make_issue(),))
            for step in range(1, attempts + 1)
            for number in range(1, attempts + 1)
        ]
        return make_stored_run(*rows, spec=make_page_flow(*steps, name=f"flow-{attempts}"))

    short = count_queries(viewer, address(make(1), make(1)))
    long = count_queries(viewer, address(make(6), make(6)))
    assert short == long == 9
