"""Two runs of a flow side by side."""

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
from runs import models
from runs.models import Run, RunStatus
from runs.pages import compare_steps
from runs.pages.compare import compare_runs
from tests.engine.builders import make_attempt, make_issue, make_step, make_usage
from tests.runs.pages.history_builders import BEGIN, make_page_flow, make_retried_run, make_stored_run
from tests.runs.pages.reading import THIN, count_queries, get_page, read_words

pytestmark = pytest.mark.django_db

HEX: dict[str, Any] = {"code": "hex_format", "audit": "Hex colours", "path": "/colours/2"}
COLOURS = {"name": "Sea", "colours": ["#00f", "#0ff", "blue"]}


def address(left: Run | str, right: Run | str = "") -> str:
    first, second = (run.pk if isinstance(run, Run) else run for run in (left, right))
    return f"/runs/compare/?a={first}&b={second}"


def compare(left: Run, right: Run) -> dict[str, Any]:
    runs = Run.objects.select_related("flow", "version", "started_by")
    return compare_runs(runs.get(pk=left.pk), runs.get(pk=right.pk), timezone.now())


def read(client: Client, left: Run, right: Run) -> str:
    return read_words(get_page(client, address(left, right)))


def make_failed(*attempts: Attempt, **fields: Any) -> Run:
    return make_stored_run(*attempts, status=RunStatus.FAILED, **fields)


def judge(output: Any = COLOURS, **fields: Any) -> Attempt:
    return make_attempt(1, 1, "failed", output=output, issues=(make_issue("high", "No colour.", **HEX | fields),))


def test_the_older_run_is_on_the_left_in_either_order(viewer: Client) -> None:
    old = make_stored_run(make_attempt(1, 1, output={"text": "before"}))
    new = make_stored_run(make_attempt(1, 1, output={"text": "after"}), again_of=old.pk)
    pages = [get_page(viewer, address(*pair)) for pair in ((old, new), (new, old))]
    for page in pages:
        assert page.index(f'href="/runs/{old.pk}/"') < page.index(f'href="/runs/{new.pk}/"')
        assert "<del>&quot;before&quot;</del> → <ins>&quot;after&quot;</ins>" in page
        assert f"Older #{old.pk}" in read_words(page) and f"original of #{new.pk}" in read_words(page)
    # By the time of creation, not by number.
    Run.objects.filter(pk=new.pk).update(created_at=BEGIN - timedelta(days=1))
    assert compare(old, new)["old"].pk == new.pk


def test_a_step_whose_output_was_accepted_is_called_so(viewer: Client) -> None:
    runs = [make_stored_run(judge()) for _ in range(2)]
    models.Attempt.objects.update(is_accepted=True)
    assert "Failed" not in read(viewer, *runs) and f"#{runs[0].pk}, attempt 1 Accepted" in read(viewer, *runs)


def test_figures_have_the_difference_with_its_sign() -> None:
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
    shown = {
        one["name"]: tuple(
            text.replace(THIN, " ").replace("\N{MINUS SIGN}", "-")
            for text in (one["old"], one["new"], one["delta"], one["tone"])
        )
        for one in compare(first, second)["figures"]
    }
    assert shown == {
        "Steps passed": ("3 of 3", "3 of 3", "same", "quiet"),
        "Attempts": ("4", "3", "-1", "passed"),
        "Issues of all attempts": ("1", "0", "-1", "passed"),
        "Duration": ("5 min 00 s", "5 min 01 s", "+1.4 s", "failed"),
        "Tokens in": ("900", "1 300", "+400", "failed"),
        "Tokens out": ("90", "90", "same", "quiet"),
        "Cost": ("$0.0400", "$0.0300", "-$0.0100", "passed"),
    }
    for fields in ({"cost": None}, {"cost": Decimal("0.01"), "unpriced_count": 1}):
        Run.objects.filter(pk=second.pk).update(**fields)
        assert [one["delta"] for one in compare(first, second)["figures"] if one["name"] == "Cost"] == ["—"]


class TestIssues:
    @staticmethod
    def group(left: Run, right: Run) -> dict[str, list[str]]:
        (step,) = (step for step in compare(left, right)["steps"] if step["shown"].index == 1)
        return {kind: [issue["row"].description for issue in issues] for kind, _, issues in step["groups"]}

    def test_they_are_new_persisted_or_fixed(self) -> None:
        first = make_stored_run(
            make_attempt(1, 1, "failed", issues=(make_issue("critical", "Gone by then."),)),
            make_attempt(1, 2, issues=(make_issue("low", "A bit long."), make_issue("high", "“red”", **HEX))),
        )
        # Two findings of a kind against one: one of them is new.
        issues = (make_issue("high", "“blue”", **HEX), make_issue("medium", "Odd.", **HEX))
        second = make_stored_run(make_attempt(1, 1, issues=issues))
        expected = {"new": ["Odd."], "persisted": ["“blue”"], "fixed": ["A bit long."]}
        assert self.group(first, second) == self.group(second, first) == expected

    def test_a_run_that_was_not_judged_fixed_nothing(self) -> None:
        first, second = make_failed(judge()), make_failed(make_attempt(1, 1, "errored", output=None))
        assert self.group(first, second) == {"unchecked": ["No colour."]}
        assert self.group(make_failed(make_attempt(1, 1, "errored")), make_failed(judge())) == {"all": ["No colour."]}

    def test_only_the_most_severe_are_listed_and_marked(self, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(compare_steps, "MAX_ISSUES", 1)
        issues = (make_issue("low", path="/colours/0"), make_issue("critical", path="/colours/1"))
        runs = [make_failed(make_attempt(1, 1, "failed", output=COLOURS, issues=issues)) for _ in range(2)]
        page = get_page(viewer, address(*runs))
        assert re.findall(r'data-marks="(\w+)"', page) == ["critical"]
        assert "1 less severe issues are not listed." in read_words(page)


def test_steps_of_other_versions_are_matched_by_name(viewer: Client) -> None:
    old = make_page_flow(make_step(1, name="Draft"), make_step(2, name="Check", compute="{}"), make_step(3, name="End"))
    new = make_page_flow(make_step(1, name="Plan"), make_step(2, name="Draft"), make_step(3, name="End", max_retries=9))
    first = make_stored_run(make_attempt(1, 1), make_attempt(2, 1), spec=old)
    second = make_stored_run(make_attempt(1, 1), make_attempt(2, 1, output={"text": "s1a1"}), spec=new)
    page = compare(first, second)
    assert [(step["shown"].name, step["only_in"], step["notes"]) for step in page["steps"]] == [
        ("Plan", "new", []),
        ("Draft", "", ["was step 1"]),
        ("Check", "old", []),
        ("End", "", []),
    ]
    assert page["steps"][1]["diff"]["is_same"]
    words = read(viewer, first, second)
    # Who sees runs does not see definitions for that.
    assert "Version 1 → version 2" in words and "max_retries" not in words


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


def test_outputs_too_long_to_compare_are_shown_or_left_to_their_own_pages(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [make_stored_run(make_attempt(1, 1, output={"n": [number, *range(5_100)]})) for number in (1, 2)]
    step = compare(*runs)["steps"][0]
    assert step["diff"] is None and len(step["outputs"]) == 2
    monkeypatch.setattr(compare_steps, "MAX_BYTES", 150)
    runs = [
        make_stored_run(
            make_attempt(1, 1, output={"text": "x" * 30}),
            make_attempt(2, 1, output={"text": f"secret {number}" + "y" * 90}),
            make_attempt(3, 1, "invalid", output=None, raw_output="secret" * 40),
        )
        for number in (1, 2)
    ]
    words = read(viewer, *runs)
    assert "Too large to show" in words and "secret" not in words


def test_what_a_model_wrote_is_inert(viewer: Client) -> None:
    hostile = "<script>alert(1)</script>\u202e\x1b[31m javascript:alert(1) {{ 7 }}"
    issues = (make_issue(description=hostile, code=hostile, path=f"/{hostile}", suggestions=(hostile,)),)
    runs = [
        make_failed(
            make_attempt(1, 1, "failed", output={hostile: [f"{hostile}{number}"]}, issues=issues),
            input={hostile: number},
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
    assert short == count_queries(viewer, address(make(6), make(6))) == 10
